"""Append-only journal of one writer: ``<crc32> <bytes of the payload> <payload, canonical JSON>`` a line.

A record counts once its newline is there. What a crash left behind it (the torn tail) and records whose
checksum fails are skipped by readers and set aside, never deleted, by the next writer.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hpcjf.errors import StoreError
from hpcjf.store.atomic import canonical_json, write_bytes
from hpcjf.store.disk import disk_errors, fsync_folder
from hpcjf.store.trust import open_regular


@dataclass(slots=True)
class _Scan:
    """What a journal's bytes hold. ``good`` are the lines that may stay, ``torn`` starts the tail."""

    events: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    good: list[bytes] = field(default_factory=list)
    bad: int = 0
    torn: int = 0


def _scan(data: bytes, where: Path) -> _Scan:
    scan = _Scan(torn=data.rfind(b"\n") + 1)
    for number, text in enumerate(data[: scan.torn].split(b"\n")[:-1], start=1):
        line = text + b"\n"
        try:
            scan.events.append(_decode(line))
            scan.good.append(line)
        except ValueError as error:
            scan.bad += 1
            scan.problems.append(f"{where}: line {number}: {error}; record skipped")
    if scan.torn < len(data):
        scan.problems.append(f"{where}: {len(data) - scan.torn} bytes of an unfinished last record skipped")
    return scan


def _encode(event: Mapping[str, Any]) -> bytes:
    payload = canonical_json(dict(event))
    return b"%08x %d %s\n" % (zlib.crc32(payload), len(payload), payload)


def _decode(line: bytes) -> dict[str, Any]:
    head = line.split(b" ", 2)
    if len(head) < 3 or not head[1].isdigit():
        raise ValueError("not a journal record")
    payload = head[2][:-1]
    if len(payload) != int(head[1]):
        raise ValueError("wrong length")
    if b"%08x" % zlib.crc32(payload) != head[0]:
        raise ValueError("wrong checksum")
    event = json.loads(payload)
    if not isinstance(event, dict):
        raise ValueError("not an object")
    return event


def read_journal(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The events in order, and one line per thing that had to be skipped. No file, no events.

    Safe while the writer appends.

    :raises UntrustedPathError: a symbolic link.
    :raises StoreError: cannot be read.
    """
    scan = _read(path, 0)
    return scan.events, scan.problems


class JournalReader:
    """Reads on where it stopped. Not across a new writer, which may set records aside."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[dict[str, Any]]:
        """The events since the last call, those that cannot be read left out. Raises as :func:`read_journal`."""
        scan = _read(self._path, self._offset)
        self._offset += scan.torn
        return scan.events


def _read(path: Path, offset: int) -> _Scan:
    try:
        with (
            disk_errors(path, keep=(FileNotFoundError,)),
            os.fdopen(open_regular(path, os.O_RDONLY, owned_by=None), "rb") as file,
        ):
            file.seek(offset)
            return _scan(file.read(), path)
    except FileNotFoundError:
        return _Scan()


class JournalWriter:
    """The journal's only writer; the caller holds the controller lock.

    ``found`` is given every event that is there on opening, so that nobody need read the file a second time.
    ``problems`` says what was set aside on opening: ``<name>.torn-<n>`` holds a torn tail, ``<name>.damaged-<n>``
    the whole journal as it was before records that cannot be read were left out.

    :raises UntrustedPathError: a symbolic link, or another user owns or can write the file.
    :raises DiskFullError: no room to set something aside; nothing was cut.
    """

    def __init__(self, path: Path, found: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path = path
        self.problems: tuple[str, ...] = ()
        with disk_errors(path):
            self._open()
            try:
                events = self._mend()
                if found is not None:
                    for event in events:
                        found(event)
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._descriptor = open_regular(self.path, flags, owned_by=os.geteuid())
        fsync_folder(self.path.parent)

    def _mend(self) -> list[dict[str, Any]]:
        data = b"".join(_chunks(self._descriptor))
        scan = _scan(data, self.path)
        self.problems = tuple(scan.problems)
        if scan.bad:
            write_bytes(_free_name(self.path, "damaged"), data)
            write_bytes(self.path, b"".join(scan.good))
            os.close(self._descriptor)
            self._open()
        elif scan.torn < len(data):
            write_bytes(_free_name(self.path, "torn"), data[scan.torn :])
            os.ftruncate(self._descriptor, scan.torn)
            os.fsync(self._descriptor)
        self._size = os.fstat(self._descriptor).st_size
        return scan.events

    def append(self, event: Mapping[str, Any]) -> None:
        """On disk when it returns. One write, so that a reader sees all of a record or a torn tail.

        :raises DiskFullError: nothing was appended; the journal is as before.
        :raises StoreError: someone else wrote, replaced or removed the journal.
        """
        record = _encode(event)
        with disk_errors(self.path):
            found = os.fstat(self._descriptor)
            if found.st_size != self._size or not found.st_nlink:
                raise StoreError(
                    "changed under its only writer", where=str(self.path), fix="stop the other controller, start again"
                )
            try:
                written = os.write(self._descriptor, record)
                while written < len(record):
                    # A short write mostly means a full disk: the next one gets the reason.
                    written += os.write(self._descriptor, record[written:])
                os.fsync(self._descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
                raise
            self._size += written

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _chunks(descriptor: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(descriptor, 1 << 20, offset):
        yield chunk
        offset += len(chunk)


def _free_name(path: Path, kind: str) -> Path:
    number = 1
    while (name := path.with_name(f"{path.name}.{kind}-{number}")).exists():
        number += 1
    return name
