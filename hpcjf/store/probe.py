"""What a mount really does, measured on this host: what another host sees is not measured here."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcjf.errors import StoreError
from hpcjf.store.atomic import write_text
from hpcjf.store.disk import disk_errors
from hpcjf.store.traces import TraceWriter, read_trace


@dataclass(frozen=True, slots=True)
class MountFacts:
    """``flock``: a second lock is refused. ``rename``: a file can be replaced. ``swmr``: a live trace can be read.

    ``free_bytes`` is what the user may still write there.
    """

    flock: bool
    rename: bool
    swmr: bool
    free_bytes: int

    def require_traces(self, folder: Path) -> None:
        """:raises StoreError: live traces cannot work under ``folder``."""
        if not (self.swmr and self.rename):
            raise StoreError(
                "this file system cannot hold live HDF5 traces (SWMR or rename failed)",
                where=str(folder),
                fix="put the run directory on another file system, e.g. scratch",
            )


def probe_mount(folder: Path) -> MountFacts:
    """Try each in a temporary subfolder of ``folder``, which is removed.

    :raises StoreError: ``folder`` cannot be written at all.
    """
    place = folder / f".probe-{secrets.token_hex(6)}"
    with disk_errors(place):
        place.mkdir(mode=0o700)
        free = os.statvfs(folder)
    try:
        return MountFacts(
            flock=_works(_flock_excludes, place),
            rename=_works(_rename_replaces, place),
            swmr=_works(_swmr_reads, place),
            free_bytes=free.f_bavail * free.f_frsize,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _works(trial: Callable[[Path], bool], place: Path) -> bool:
    try:
        return trial(place)
    except (OSError, StoreError):
        return False


def _flock_excludes(place: Path) -> bool:
    """Some mounts let everybody have the lock."""
    with (place / "lock").open("w") as first, (place / "lock").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _rename_replaces(place: Path) -> bool:
    path = place / "file"
    for text in ("old", "new"):
        write_text(path, text)
    return path.read_text() == "new"


def _swmr_reads(place: Path) -> bool:
    path = place / "trace.h5"
    with TraceWriter(path) as writer:
        for step in (1, 2):
            writer.append(step=step)
            if read_trace(path)["step"].tolist() != list(range(1, step + 1)):
                return False
    return True
