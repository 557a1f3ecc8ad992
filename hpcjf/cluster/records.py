"""What local jobs leave behind by name, in one folder: who they are, how they ended, that they were cancelled.

Each file is written once, whole, and never changed. Job and controller share nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


class Records:
    """Kinds are ``job`` (job_id, host, started), ``end`` (state, reason, ended) and ``cancel`` (user)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, name: str, kind: str, record: Record) -> bool:
        """Write the record; False where there is one already, which then stands."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.folder / f".{name}.{kind}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8", opener=_private) as file:
            json.dump(dict(record), file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._path(name, kind))
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def read(self, name: str, kind: str) -> Record | None:
        """None where there is none, or where it cannot be read."""
        try:
            record = json.loads(self._path(name, kind).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def names(self) -> Iterator[str]:
        """Names of all jobs that ever started."""
        for path in self.folder.glob("*.job.json"):
            yield path.name.removesuffix(".job.json")

    def _path(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}.json"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
