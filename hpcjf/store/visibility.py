"""Files that another host has just made. On a shared mount they may be invisible for up to a minute."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

VISIBLE_SECONDS = 120.0
"""Measured delays are 30 to 60 s (attribute caches of NFS); twice that before a file counts as missing."""


def wait_visible(path: Path, seconds: float = VISIBLE_SECONDS) -> bool:
    """Whether the file can be opened within ``seconds``. Listing the folder makes clients look again."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            os.listdir(path.parent)
            with path.open("rb"):
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(1.0, seconds / 10))
