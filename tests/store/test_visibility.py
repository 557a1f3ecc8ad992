"""Waiting for files of other hosts."""

from __future__ import annotations

import threading
from pathlib import Path

from hpcjf.store.visibility import wait_visible


def test_a_file_that_is_there_is_seen_at_once(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{}")
    assert wait_visible(tmp_path / "spec.json", seconds=0)


def test_a_file_that_shows_up_later_is_waited_for(tmp_path: Path) -> None:
    """L16, L17, P16: a file made on one node is not seen on another for a while."""
    path = tmp_path / "later" / "spec.json"

    def make() -> None:
        path.parent.mkdir()
        path.write_text("{}")

    timer = threading.Timer(0.2, make)
    timer.start()
    try:
        assert wait_visible(path, seconds=30)
    finally:
        timer.join()


def test_waiting_ends(tmp_path: Path) -> None:
    """L1: nothing waits for ever."""
    assert not wait_visible(tmp_path / "never", seconds=0.2)
