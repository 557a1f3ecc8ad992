"""Starts the command line as a person would, and looks at what its run directory says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hpcjf.core.lifecycle import StudyState, replay
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import RunLayout
from hpcjf.store.traces import read_trace

_HPCJF = [sys.executable, "-m", "hpcjf.cli"]


def hpcjf(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*_HPCJF, *map(str, arguments)], capture_output=True, text=True, timeout=500, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def start(file: Path) -> subprocess.Popen[bytes]:
    """``hpcjf run`` in a session of its own; its words go to run.log beside the study."""
    with (file.parent / "run.log").open("ab") as log:
        return subprocess.Popen([*_HPCJF, "run", str(file)], stdout=log, stderr=log, start_new_session=True)


def state_of(root: Path) -> StudyState:
    return replay(read_journal(RunLayout(root).journal)[0])


def wait_until(condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.1)


def training(root: Path) -> int:
    """How many live attempts have rows in their traces."""
    layout = RunLayout(root)
    if not layout.study.exists():
        return 0
    traces = [layout.attempt(attempt.trial, attempt.number).trace for _, attempt in state_of(root).live()]
    return sum(len(read_trace(trace)) > 0 for trace in traces)
