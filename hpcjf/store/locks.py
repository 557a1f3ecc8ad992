"""A file lock that never waits in silence and never for ever.

It prevents waste, it is not what makes the store correct: on some mounts flock excludes nobody, or only
processes of the same host. Correctness comes from single writers and generations.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from hpcjf.errors import LockTimeoutError, StoreError
from hpcjf.store.atomic import read_json, write_json
from hpcjf.store.disk import disk_errors
from hpcjf.store.trust import untrusted_kind

log = logging.getLogger(__name__)
PATIENCE = 10.0
"""Seconds of waiting before somebody is told."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. ``start`` is the process's start time in clock ticks since boot: pids are used again."""

    host: str
    pid: int
    start: str
    job: str

    @classmethod
    def current(cls) -> Holder:
        pid = os.getpid()
        return cls(socket.gethostname(), pid, start_token(pid), os.environ.get("SLURM_JOB_ID", ""))

    def __str__(self) -> str:
        job = f", Slurm job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"


def start_token(pid: int) -> str:
    """Field 22 of /proc/PID/stat; empty where there is no such process."""
    try:
        # The command in field 2 may hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class Lock:
    """Exclusive lock on ``path`` for a ``with`` block. ``timeout`` and ``poll`` are seconds.

    ``on_wait`` gets one sentence, once, after ten seconds of waiting; without it the log does.
    The lock file stays after release, as removing it would let two processes hold two inodes.
    """

    def __init__(
        self, path: Path, *, timeout: float, on_wait: Callable[[str], None] | None = None, poll: float = 0.05
    ) -> None:
        self.path, self.timeout = path, timeout
        self._tell = on_wait or log.warning
        self._lock = FileLock(path, mode=0o600, poll_interval=poll, fallback_to_soft=False)

    @property
    def record(self) -> Path:
        """The holder's side file; one left by a dead holder is overwritten by the next."""
        return self.path.with_name(self.path.name + ".holder")

    def acquire(self) -> None:
        """:raises LockTimeoutError: not free in time; names the holder.
        :raises UntrustedPathError: a symbolic link stands at the path.
        :raises StoreError: the mount cannot lock.
        """
        if not self._wait(min(PATIENCE, self.timeout)):
            if self.timeout > PATIENCE:
                self._tell(f"{self.path}: waiting for {self.describe_holder()}")
            if self.timeout <= PATIENCE or not self._wait(self.timeout - PATIENCE):
                raise LockTimeoutError(
                    f"not free after {self.timeout:g} s, held by {self.describe_holder()}",
                    where=str(self.path),
                    fix="wait for it to end, or end it",
                )
        # Without a record the lock still holds, and freeing a full disk needs locks.
        with suppress(StoreError):
            write_json(self.record, asdict(Holder.current()))

    def _wait(self, seconds: float) -> bool:
        """Whether the lock was got. A lock file unlinked by a peer (ESTALE) is tried again until time is up."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with disk_errors(self.path, keep=(Timeout,)):
                    self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
                return True
            except Timeout:
                return False
            except StoreError as error:
                number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
                if number == errno.ELOOP:
                    raise untrusted_kind(self.path) from error
                if number != errno.ESTALE or time.monotonic() >= deadline:
                    raise
                time.sleep(min(0.05, seconds))

    def holder(self) -> Holder | None:
        """Who holds the lock, or did last if it died; None when unknown."""
        try:
            return Holder(**read_json(self.record, owned_by=None))
        except (OSError, StoreError, TypeError):
            return None

    def describe_holder(self) -> str:
        holder = self.holder()
        return "an unknown process" if holder is None else str(holder)

    def release(self) -> None:
        with suppress(OSError):
            self.record.unlink()
        self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
