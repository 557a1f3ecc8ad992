"""Whole-file writes that either happen or do not: temporary file in the same folder, fsync, replace, fsync folder."""

from __future__ import annotations

import errno
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcjf.errors import StoreError
from hpcjf.store.disk import disk_errors, fsync_folder, fsync_tree
from hpcjf.store.trust import open_regular


class MissingFileError(StoreError, FileNotFoundError):
    """Not there, or not visible yet on a shared mount."""


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` (mode 0600). The old file stands until the new one is on disk.

    :raises DiskFullError: the old file is untouched and the temporary file is gone.
    :raises StoreError: any other fault of the file system.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with disk_errors(path):
        try:
            _write_new(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        fsync_folder(path.parent)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """:func:`write_bytes` in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, obj: object) -> None:
    """:func:`write_bytes` as canonical JSON and a newline."""
    write_bytes(path, canonical_json(obj) + b"\n")


def canonical_json(obj: object) -> bytes:
    """One line, ASCII, sorted keys. NaN and infinities are written as Python writes and reads them."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":")).encode()


def read_json(path: Path, *, owned_by: int | None) -> Any:
    """What ``path`` holds. ``owned_by`` is the user id to trust beside root, None for whoever wrote it.

    :raises MissingFileError: not there, or unlinked by a peer on a shared mount (ESTALE).
    :raises UntrustedPathError: a symbolic link or another user's file.
    :raises StoreError: cannot be read, or is not JSON.
    """
    with disk_errors(path):
        try:
            with os.fdopen(open_regular(path, os.O_RDONLY, owned_by=owned_by), "rb") as file:
                data = file.read()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                raise MissingFileError("not there", where=str(path)) from error
            raise
    try:
        return json.loads(data)
    except ValueError as error:
        raise StoreError(f"not JSON: {error}", where=str(path), fix="the file is damaged; move it away") from error


def publish_folder(tmp: Path, final: Path) -> None:
    """Make a finished folder appear under its name at once. Both must lie on one file system.

    :raises DiskFullError: ``tmp`` is still there and ``final`` is not.
    :raises StoreError: ``final`` exists and is not empty, or another fault.
    """
    with disk_errors(final):
        fsync_tree(tmp)
        os.rename(tmp, final)
        fsync_folder(final.parent)
