"""Processes that die or race at the worst moment."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import h5py
import pytest

from hpcjf.store.journal import JournalWriter, read_journal
from hpcjf.store.registry import Registry
from hpcjf.store.traces import read_trace, salvage

Start = Callable[..., "subprocess.Popen[str]"]

TRACE = """
import sys
from pathlib import Path
from hpcjf.store.traces import TraceWriter
with TraceWriter(Path(sys.argv[1])) as writer:
    for step in range(int(sys.argv[2])):
        writer.append(step=step, kl=step / 2, tokens=step * 3)
        print(step, flush=True)
"""
JOURNAL = """
import sys
from pathlib import Path
from hpcjf.store.journal import JournalWriter
with JournalWriter(Path(sys.argv[1])) as journal:
    for number in range(10**9):
        journal.append({"number": number, "pad": "x" * (number % 977)})
        print(number, flush=True)
"""
SAVE = """
import os, signal, sys
from pathlib import Path
import hpcjf.store.registry as module
entry = module.Registry(Path(sys.argv[1])).entry("c0ffee", "tiny-s", 1)
entry.claim("t1.1", 1)

def save(step):
    staging = entry.staging(step)
    for name in "abc":
        (staging / name).write_bytes(name.encode() * 100_000)
    entry.publish(staging, step, owner="t1.1", generation=1, meta={})

save(10)
calls = 0

def die_at(target):
    def trace(frame, event, argument):
        global calls
        if event == "c_call" and getattr(argument, "__module__", None) in ("posix", "_io") or event == "call" and (
            frame.f_code.co_filename.endswith(("registry.py", "atomic.py", "disk.py", "locks.py"))
        ):
            calls += 1
            if calls == target:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(trace)

die_at(int(sys.argv[2]))
save(20)
sys.setprofile(None)
print(calls)
"""
CLAIM = """
import sys
from pathlib import Path
from hpcjf.errors import FencedError
from hpcjf.store.registry import Registry
entry = Registry(Path(sys.argv[1])).entry("c0ffee", "tiny-s", 1)
owner, generation = "t" + sys.argv[2], int(sys.argv[2]) // 2
try:
    entry.claim(owner, generation)
    staging = entry.staging(10)
    (staging / "weights").write_text(owner)
    entry.publish(staging, 10, owner=owner, generation=generation, meta={"owner": owner})
    print("published")
except (FencedError, FileNotFoundError):  # the latter where a newer owner swept the folder before it was written to
    print("fenced")
"""


def lines(job: subprocess.Popen[str]) -> IO[str]:
    assert job.stdout is not None
    return job.stdout


def kill_after(job: subprocess.Popen[str], last: int) -> int:
    """Kill without warning once ``last`` was reported. Returns the last number that was."""
    for line in lines(job):
        if int(line) >= last:
            break
    job.kill()
    rest = lines(job).read().split("\n")[:-1]
    assert job.wait(timeout=60) == -9
    return int(rest[-1]) if rest else last


@pytest.mark.parametrize("last", [0, 7, 300])
def test_every_row_of_a_killed_writer_is_readable(start: Start, tmp_path: Path, last: int) -> None:
    """H1, P22: plain HDF5 refuses the file for ever; a read in SWMR mode gives all, and salvage mends it."""
    path = tmp_path / "trace.h5"
    reported = kill_after(start(TRACE, path, 10**9), last)
    rows = read_trace(path)
    assert rows["step"].tolist() == list(range(len(rows)))
    assert len(rows) >= reported + 1
    for mode in ("r", "a"):
        with pytest.raises(OSError, match="already open for write"):
            h5py.File(path, mode)
    assert salvage(path) == len(rows)
    with h5py.File(path, "r") as file:
        assert len(file["trace"]) == len(rows)


def test_a_reader_that_polls_meets_no_error_and_no_torn_row(start: Start, tmp_path: Path) -> None:
    """H2, P19, P23: random reads during appends; the writer ends well whatever readers do."""
    path, total = tmp_path / "trace.h5", 1500
    job = start(TRACE.replace("        print(step, flush=True)\n", ""), path, total)
    seen, polls, deadline = 0, 0, time.monotonic() + 120
    while seen < total:
        assert time.monotonic() < deadline
        rows = read_trace(path, seen)
        expected = list(range(seen, seen + len(rows)))
        assert rows["step"].tolist() == expected
        assert (rows["kl"] * 2).tolist() == expected
        assert (rows["tokens"] // 3).tolist() == expected
        seen += len(rows)
        polls += 1
    assert job.wait(timeout=60) == 0
    assert len(read_trace(path)) == total
    assert polls > 3


def test_a_second_writer_cannot_harm_a_live_trace(start: Start, tmp_path: Path) -> None:
    """H4: SWMR drops the lock, so a second open with "w" would cut the file."""
    path = tmp_path / "trace.h5"
    first = start(TRACE, path, 10**9)
    assert lines(first).readline() == "0\n"
    second = start(TRACE, path, 10)
    _, errors = second.communicate(timeout=60)
    assert "StoreError" in errors
    reported = kill_after(first, 20)
    assert len(read_trace(path)) >= reported + 1


@pytest.mark.parametrize("last", [0, 50])
def test_every_event_that_was_acknowledged_survives_a_kill(start: Start, tmp_path: Path, last: int) -> None:
    """P14: kill after any event; replay must hold it."""
    path = tmp_path / "controller.jsonl"
    reported = kill_after(start(JOURNAL, path), last)
    events, _ = read_journal(path)
    assert [event["number"] for event in events] == list(range(len(events)))
    assert len(events) >= reported + 1
    with JournalWriter(path) as journal:
        journal.append({"number": len(events)})
    assert len(read_journal(path)[0]) == len(events) + 1


def test_a_save_killed_anywhere_leaves_a_complete_checkpoint(start: Start, tmp_path: Path) -> None:
    """K2, L20: at each of several points of the save, the newest is the old one or the whole new one."""
    whole = start(SAVE, tmp_path / "whole", 0)
    (tmp_path / "whole").mkdir()
    calls = int(whole.communicate(timeout=60)[0])
    assert calls > 50
    found = []
    for target in {1, *range(2, calls, max(1, calls // 12)), calls}:
        root = tmp_path / str(target)
        root.mkdir()
        assert start(SAVE, root, target).wait(timeout=60) == -9
        entry = Registry(root).entry("c0ffee", "tiny-s", 1)
        newest = entry.newest()
        assert newest is not None
        assert max(path.name for path in entry.folder.glob("step-*")) == newest.path.name, (
            "half a checkpoint was visible"
        )
        found.append((target, newest.step, entry.steps_done()))
        entry.claim("t1.2", 1)
        staging = entry.staging(20)
        (staging / "a").write_text("again")
        entry.publish(staging, 20, owner="t1.2", generation=1, meta={})
        assert entry.steps_done() == 20
        entry.collect(1)
        assert sorted(path.name for path in entry.folder.iterdir()) == ["entry.json", "entry.lock", "step-00000020"]
    assert {step for _, step, _ in found} == {10, 20}
    assert all(step == done for _, step, done in found)
    assert [step for _, step, _ in sorted(found)] == sorted(step for _, step, _ in found)


def test_sixteen_claims_at_once_leave_one_owner_of_the_newest_generation(start: Start, tmp_path: Path) -> None:
    """L8, P13: no shared file is torn, nobody older publishes after somebody newer."""
    jobs = [start(CLAIM, tmp_path, number) for number in range(16)]
    outcomes = []
    for job in jobs:
        out, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
        outcomes.append(out.strip())
    entry = Registry(tmp_path).entry("c0ffee", "tiny-s", 1)
    state = entry.state()
    assert state.generation == 7
    assert state.owner in ("t14", "t15")
    assert outcomes[int(state.owner[1:])] == "published"
    newest = entry.newest()
    assert newest is not None
    assert newest.meta["owner"] == state.owner == (newest.path / "weights").read_text()
