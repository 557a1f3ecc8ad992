from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcjf.errors import StoreError, UntrustedPathError, UserError
from hpcjf.store.layout import RunLayout


def test_every_path_lies_under_the_root_so_that_a_run_can_be_moved(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    attempt = layout.attempt(7, 1)
    names = {
        layout.study: "study.yaml",
        layout.earlier: "earlier.json",
        layout.journal: "journal/controller.jsonl",
        layout.lock: "controller.lock",
        layout.stop_request: "stop.json",
        layout.report: "report.html",
        layout.registry: "registry",
        layout.entry("ab12", "tiny-s", 3): "registry/ab12-tiny-s-s3",
        attempt.spec: "trials/0007/attempt-01/spec.json",
        attempt.trace: "trials/0007/attempt-01/trace.h5",
        attempt.sidecar: "trials/0007/attempt-01/trace.json",
        attempt.result: "trials/0007/attempt-01/result.json",
        attempt.stop: "trials/0007/attempt-01/stop",
        attempt.job_folder: "trials/0007/attempt-01/job",
    }
    assert {path: str(path.relative_to(tmp_path)) for path in names} == names


@pytest.mark.parametrize(
    ("config_id", "model"), [("../x", "m"), ("a", "m/../../x"), ("", "m"), ("a", ".."), ("a", "m\n")]
)
def test_an_entry_name_cannot_leave_the_registry(tmp_path: Path, config_id: str, model: str) -> None:
    with pytest.raises(StoreError, match="cannot be part of a folder name"):
        RunLayout(tmp_path).entry(config_id, model, 0)


def test_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    old = os.umask(0)
    try:
        layout.create()
        layout.attempt(1, 1).create()
    finally:
        os.umask(old)
    folders = [layout.root, *(path for path in layout.root.rglob("*") if path.is_dir())]
    assert len(folders) == 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_creating_again_keeps_what_is_there(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    for _ in range(2):
        layout.create()
        layout.attempt(1, 1).create()
        layout.journal.touch()
        layout.study.write_text("study: {}")
    assert layout.study.read_text() == "study: {}"


@pytest.mark.parametrize("name", ["thesis.tex", "study.yaml", "journal/diary.txt"])
def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / "home" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="not empty and not a run directory; name a new folder"):
        RunLayout(tmp_path / "home").create()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    layout.create()
    layout.trials.rmdir()
    layout.trials.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="trials"):
        layout.create()


def test_many_processes_may_create_one_run(tmp_path: Path) -> None:
    """P13: over a hundred workers race to make one directory."""
    code = (
        "import sys; from pathlib import Path; from hpcjf.store.layout import RunLayout;"
        "RunLayout(Path(sys.argv[1])).create()"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")]) for _ in range(16)]
    assert [job.wait(timeout=120) for job in jobs] == [0] * 16
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["journal", "registry", "trials"]


def test_writers_refuse_another_users_run_and_readers_learn_its_owner(
    tmp_path: Path, as_stranger: Callable[[Path], int]
) -> None:
    layout = RunLayout(tmp_path / "run")
    layout.create()
    as_stranger(layout.root)
    with pytest.raises(UntrustedPathError, match="belongs to"):
        layout.check_owner()
    with pytest.raises(UntrustedPathError):
        layout.create()
    assert layout.owner == layout.root.stat().st_uid != os.geteuid()


def test_a_run_that_others_can_write_is_refused(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    layout.create()
    layout.check_owner()
    layout.root.chmod(0o777)
    with pytest.raises(UntrustedPathError, match="other users can write"):
        layout.check_owner()


def test_status_pays_for_no_array_library() -> None:
    code = (
        "import sys, hpcjf.store.layout, hpcjf.store.atomic, hpcjf.store.journal;"
        "sys.exit(str({'numpy', 'h5py', 'torch', 'pydantic', 'filelock'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == ""
