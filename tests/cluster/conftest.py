"""Jobs to run, and a scheduler made of small programs on PATH that say what a test tells them to."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcjf.cluster.base import JobRequest
from hpcjf.study import Resources

JOBS = '''
import os, pathlib, signal, subprocess, sys, time


def wait(path):
    """Run until the file "go" stands beside path."""
    folder = pathlib.Path(path).parent
    with open(folder / "runs", "a") as file:
        file.write(f"{os.getpid()}\\n")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while not (folder / "go").exists():
        time.sleep(0.02)


def stubborn(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path(path + ".up").touch()
    time.sleep(600)


def warned(path):
    signal.signal(signal.SIGUSR2, lambda *_: pathlib.Path(path + ".usr2").touch())
    while True:
        time.sleep(0.1)


def fail(path):
    raise SystemExit(3)


def leave_child(path):
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(path + ".child").write_text(str(child.pid))


def environment(path):
    pathlib.Path(path + ".env").write_text("\\n".join(f"{k}={v}" for k, v in os.environ.items()))
'''


def _eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait for a condition; fail after ``seconds``."""
    return _eventually


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JobRequest]:
    """A request for one of the functions in JOBS; its argument is a path in the test's folder."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sample_jobs.py").write_text(JOBS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))

    def make(function: str, name: str = "job-1", signal_seconds: int = 60, **resources: object) -> JobRequest:
        folder = tmp_path / name / "job"
        chosen = Resources.model_construct(**(Resources().model_dump() | resources))
        argument = str(tmp_path / name / "spec.json")
        return JobRequest(name, folder, f"sample_jobs:{function}", argument, chosen, signal_seconds)

    return make


PROGRAM = """#!/bin/bash
name=$(basename "$0")
cd {folder}
echo "$name $*" >> calls
env > "$name.env"
[ "$name" != sbatch ] || cat > sbatch.stdin
[ ! -e "$name.hang" ] || sleep 600
cat "$name.out" 2>/dev/null
cat "$name.err" >&2 2>/dev/null
exit "$(cat "$name.code" 2>/dev/null || echo 0)"
"""


@dataclass
class Scheduler:
    folder: Path

    def says(self, program: str, out: str = "", err: str = "", code: int = 0) -> None:
        for kind, text in (("out", out), ("err", err), ("code", str(code))):
            (self.folder / f"{program}.{kind}").write_text(text)

    def hangs(self, program: str) -> None:
        (self.folder / f"{program}.hang").touch()

    def queue(self, *jobs: tuple[str, str] | tuple[str, str, str]) -> None:
        """Jobs in squeue: id, state and, for one that ended, the time of its end."""
        rows = []
        for job_id, state, *end in jobs:
            rows.append(
                f"{job_id:<64}{'n' + job_id:<256}{state:<32}{'100':<32}{(end or ['N/A'])[0]:<32}{'1':<16}None\n"
            )
        self.says("squeue", "".join(rows))

    def calls(self, program: str) -> list[str]:
        log = self.folder / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.split()[0] == program]


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Stands in for Slurm's programs; every call is logged."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scancel", "scontrol", "srun"):
        program = folder / name
        program.write_text(PROGRAM.format(folder=folder))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Scheduler(folder)
