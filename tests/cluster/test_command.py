"""Scheduler commands end in time, with all that they started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcjf.cluster.command import Answer, run_command
from hpcjf.cluster.processes import start_token
from hpcjf.errors import PermanentClusterError, TransientClusterError


def test_the_answer_is_what_the_command_said() -> None:
    assert run_command(["cat"], timeout=30, text="é\n") == Answer(0, "é\n", "")
    assert run_command(["bash", "-c", r"printf 'a\xff' >&2; exit 3"], timeout=30) == Answer(3, "", "a\ufffd")


def test_arguments_meet_no_shell(tmp_path: Path) -> None:
    assert run_command(["printf", "%s", f"$(touch {tmp_path}/x)"], timeout=30).out == f"$(touch {tmp_path}/x)"
    assert list(tmp_path.iterdir()) == []


def test_a_late_command_is_killed_with_its_children(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """P35: a site's sbatch may be a wrapper; the real one must not submit after we have looked the name up."""
    with pytest.raises(TransientClusterError, match=r"bash: no answer within 1 s"):
        run_command(["bash", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait"], timeout=1)
    child = int((tmp_path / "child").read_text())
    eventually(lambda: start_token(child) is None)


def test_a_command_that_is_not_there_says_how_to_go_on() -> None:
    with pytest.raises(PermanentClusterError, match=r"sbatch-of-nowhere: not found on PATH; load the site's"):
        run_command(["sbatch-of-nowhere"], timeout=1)


def test_times_are_asked_for_as_epoch_seconds(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local times would be ambiguous for an hour each autumn."""
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    run_command(["squeue"], timeout=30, epoch_times=True)
    assert "SLURM_TIME_FORMAT=%s" in (scheduler.folder / "squeue.env").read_text().splitlines()
    run_command(["scancel"], timeout=30)
    assert "SLURM_TIME_FORMAT" not in (scheduler.folder / "scancel.env").read_text()
