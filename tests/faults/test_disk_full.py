"""ENOSPC, EDQUOT or a file size limit: what was there before is still there, and the fault has its own name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hpcjf.store.journal import JournalWriter, read_journal
from hpcjf.store.traces import read_trace

Start = Callable[..., "subprocess.Popen[str]"]


class Disk(Protocol):
    @property
    def folder(self) -> Path: ...
    @property
    def limit(self) -> Callable[[], None] | None: ...


ATOMIC = """
import json, sys
from pathlib import Path
from hpcjf.errors import DiskFullError
from hpcjf.store.atomic import write_bytes
path = Path(sys.argv[1]) / "file"
write_bytes(path, b"old")
try:
    write_bytes(path, b"x" * 1_000_000)
except DiskFullError:
    print(json.dumps([path.read_text(), [each.name for each in path.parent.iterdir()]]))
"""
JOURNAL = """
import json, sys
from pathlib import Path
from hpcjf.errors import DiskFullError
from hpcjf.store.journal import JournalWriter
number = 0
with JournalWriter(Path(sys.argv[1]) / "j") as journal:
    for _ in range(2):
        try:
            while number < 10_000:
                journal.append({"number": number, "pad": "x" * 3001})
                number += 1
        except DiskFullError:
            print(json.dumps(number))
"""
TRACE = """
import json, os, sys
from pathlib import Path
from hpcjf.errors import DiskFullError, StoreError
from hpcjf.store.traces import TraceWriter
place = Path(sys.argv[1])
step = 0
with TraceWriter(place / "trace.h5") as writer:
    try:
        while step < 100_000:
            writer.append(step=step)
            step += 1
    except DiskFullError:
        pass
    try:
        writer.append(step=step)
    except StoreError:
        refused = True
elsewhere = TraceWriter(Path(sys.argv[2]))
elsewhere.append(step=1)
elsewhere.close()
print(json.dumps([step, refused]), flush=True)
os._exit(7)
"""
SAVE = """
import json, sys
from pathlib import Path
from hpcjf.errors import DiskFullError
from hpcjf.store.atomic import write_bytes
from hpcjf.store.registry import Registry
root = Path(sys.argv[1])
entry = Registry(root).entry("c0ffee", "tiny-s", 1)
entry.claim("o", 1)

def save(step, size):
    staging = entry.staging(step)
    write_bytes(staging / "weights", b"x" * size)
    entry.publish(staging, step, owner="o", generation=1, meta={})

save(10, 100_000)
try:
    save(20, 1_000_000)
except DiskFullError:
    full = True
newest = entry.newest()
filler = root.joinpath("filler").open("wb", buffering=0)
try:
    while filler.write(b"x" * 4096) == 4096:
        pass
except OSError:
    pass
freed = Registry(root).collect_budget(0, ())
print(json.dumps([full, newest.step, [path.name for path in freed]]))
"""


def result(job: subprocess.Popen[str], code: int = 0) -> Any:
    out, errors = job.communicate(timeout=120)
    assert job.returncode == code, errors
    return [json.loads(line) for line in out.splitlines()]


def test_a_whole_file_keeps_its_old_content_without_litter(start: Start, disk: Disk) -> None:
    assert result(start(ATOMIC, disk.folder, limit=disk.limit)) == [["old", ["file"]]]


def test_a_journal_keeps_every_event_and_can_go_on_when_there_is_room(start: Start, disk: Disk) -> None:
    counts = result(start(JOURNAL, disk.folder, limit=disk.limit))
    assert len(counts) == 2
    assert counts[0] == counts[1] > 10
    path = disk.folder / "j"
    events, problems = read_journal(path)
    assert [event["number"] for event in events] == list(range(counts[0]))
    assert problems == []
    with JournalWriter(path) as journal:
        journal.append({"n": 1})
    assert len(read_journal(path)[0]) == counts[0] + 1


def test_a_trace_keeps_its_rows_and_the_process_lives_on(start: Start, disk: Disk, tmp_path: Path) -> None:
    """H16, H17: closing such a file kills the process, so nothing closes it; other traces still work."""
    ((step, refused),) = result(start(TRACE, disk.folder, tmp_path / "other.h5", limit=disk.limit), code=7)
    assert refused
    assert step > 500
    rows = read_trace(disk.folder / "trace.h5")
    assert rows["step"].tolist()[:step] == list(range(step))
    assert len(rows) <= step + 1
    assert read_trace(tmp_path / "other.h5")["step"].tolist() == [1]


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one_and_room_can_be_made(start: Start, disk: Disk) -> None:
    assert result(start(SAVE, disk.folder, limit=disk.limit)) == [[True, 10, ["step-00000010"]]]
