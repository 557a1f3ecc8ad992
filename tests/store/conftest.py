"""A file that is not ours, whoever runs the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def as_stranger(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], int]:
    """Make ``path`` belong to another user than the process's. Returns the process's user id."""

    def make(path: Path) -> int:
        if os.geteuid() == 0:
            os.chown(path, 54321, 54321, follow_symlinks=False)
            return 0
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
        return stranger

    return make
