"""What the disk says, in the project's errors, and what must be on it before we go on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcjf.errors import DiskFullError, HpcjfError, NotPermittedError, StoreError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, quota, or the shell's file size limit: the same fault with the same way out."""
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def disk_errors(path: Path, *, keep: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Turn an ``OSError`` about ``path`` into the StoreError it means; those in ``keep`` pass through."""
    try:
        yield
    except HpcjfError:
        raise
    except keep:
        raise
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                error.strerror or "disk full",
                where=str(path),
                fix="free space or raise the quota; old files are intact",
            ) from error
        what = error.strerror or str(error)
        if error.errno in _REFUSED:
            fix = "name a folder of yours, or mend its permissions"
            raise NotPermittedError(what, where=str(path), fix=fix) from error
        raise StoreError(what, where=str(path)) from error


def fsync_tree(folder: Path) -> None:
    """Put every file and folder below, and ``folder`` itself, on disk."""
    for where, _, names in os.walk(folder, topdown=False):
        for name in names:
            _fsync(Path(where, name), os.O_RDONLY | os.O_NOFOLLOW)
        fsync_folder(Path(where))


def fsync_folder(folder: Path) -> None:
    _fsync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
