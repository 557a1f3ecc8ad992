from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from hpcjf.errors import LockTimeoutError, StoreError, UntrustedPathError
from hpcjf.store import locks
from hpcjf.store.locks import Holder, Lock, start_token

HOLD = """
import sys
from pathlib import Path
from hpcjf.store.locks import Lock
with Lock(Path(sys.argv[1]), timeout=30):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds ``tmp_path/lock`` until its standard input closes."""
    job = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"SLURM_JOB_ID": "4711"},
    )
    assert pipe(job.stdout).readline() == "held\n"
    yield job
    job.kill()
    job.wait(timeout=30)
    pipe(job.stdout).close()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def test_a_lock_can_be_taken_again_after_release_and_leaves_no_record(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", timeout=5)
    for _ in range(2):
        with lock:
            assert lock.holder() == Holder.current()
        assert lock.holder() is None


def test_a_timeout_names_the_holder_and_its_job(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """L1, L4: every acquire ends, and says who is in the way."""
    with pytest.raises(LockTimeoutError, match=rf"held by process {other.pid} on \S+, Slurm job 4711; wait for it"):
        Lock(tmp_path / "lock", timeout=0.2).acquire()


def test_a_second_lock_of_the_same_process_times_out_as_well(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock", timeout=5), pytest.raises(LockTimeoutError, match=f"process {os.getpid()} "):
        Lock(tmp_path / "lock", timeout=0.1).acquire()


def test_the_holder_record_tells_processes_of_one_number_apart(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    holder = Lock(tmp_path / "lock", timeout=1).holder()
    assert holder is not None
    assert holder.start == start_token(other.pid) != start_token(os.getpid())
    assert start_token(2**31 - 1) == ""


def test_a_long_wait_is_announced_once_and_then_got(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L11: a silent wait looks like a hang."""
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    told: list[str] = []

    def tell(message: str) -> None:
        told.append(message)
        pipe(other.stdin).close()

    with Lock(tmp_path / "lock", timeout=60, on_wait=tell) as lock:
        assert lock.holder() == Holder.current()
    assert told == [f"{tmp_path / 'lock'}: waiting for process {other.pid} on {Holder.current().host}, Slurm job 4711"]


def test_the_death_of_the_holder_frees_the_lock(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    with Lock(tmp_path / "lock", timeout=30) as lock:
        assert lock.holder() == Holder.current()


@pytest.mark.parametrize("name", ["lock", "lock.holder"])
@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_a_planted_link_never_harms_its_target(tmp_path: Path, name: str, target: str) -> None:
    """L7: two CVEs of file locks were a link at the lock's path."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / name).symlink_to(tmp_path / target)
    lock = Lock(tmp_path / "lock", timeout=1)
    if name == "lock":
        with pytest.raises(UntrustedPathError, match="not a regular file"):
            lock.acquire()
    else:
        with lock:
            assert not lock.record.is_symlink()
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_mount_that_cannot_lock_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """L1, L13, L14: no hang, and no silent change to a soft lock."""

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(StoreError, match=f"lock: {os.strerror(number)}") as caught:
        Lock(tmp_path / "lock", timeout=60).acquire()
    assert not isinstance(caught.value, LockTimeoutError)


def test_a_lock_file_that_a_peer_unlinked_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: ESTALE."""
    flock, fails = fcntl.flock, [2]

    def stale(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fails[0]:
            fails[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", stale)
    with Lock(tmp_path / "lock", timeout=30):
        assert fails == [0]


def test_a_lock_holds_where_its_record_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing a full disk needs locks."""

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with Lock(tmp_path / "lock", timeout=5) as lock:
        assert lock.holder() is None
        with pytest.raises(LockTimeoutError, match="held by an unknown process"):
            Lock(tmp_path / "lock", timeout=0.1).acquire()


@pytest.mark.parametrize("text", ["", "[]", '{"host": "a"}', "null"])
def test_a_damaged_record_is_an_unknown_holder(tmp_path: Path, text: str) -> None:
    lock = Lock(tmp_path / "lock", timeout=1)
    lock.record.write_text(text)
    assert lock.describe_holder() == "an unknown process"
