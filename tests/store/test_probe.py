from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import h5py
import pytest

from hpcjf.errors import StoreError
from hpcjf.store.probe import MountFacts, probe_mount


def fails(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_local_mount_can_do_everything_and_is_left_clean(tmp_path: Path) -> None:
    facts = probe_mount(tmp_path)
    assert (facts.flock, facts.rename, facts.swmr) == (True, True, True)
    assert facts.free_bytes > 0
    assert list(tmp_path.iterdir()) == []
    facts.require_traces(tmp_path)


def test_a_lock_that_everybody_gets_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L2: on some mounts flock does nothing and says nothing."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert not probe_mount(tmp_path).flock


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [(fcntl, "flock", {"flock"}), (os, "replace", {"rename", "swmr"}), (h5py, "File", {"swmr"})],
)
def test_each_fact_is_measured_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, lost: set[str]
) -> None:
    """H14: found out at the start, not at the first result."""
    monkeypatch.setattr(module, name, fails)
    facts = probe_mount(tmp_path)
    assert {name for name in ("flock", "rename", "swmr") if not getattr(facts, name)} == lost
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("facts", [MountFacts(True, True, False, 1), MountFacts(True, False, True, 1)])
def test_a_mount_without_live_traces_is_refused_with_a_way_out(tmp_path: Path, facts: MountFacts) -> None:
    with pytest.raises(StoreError, match=r"cannot hold live HDF5 traces .*; put the run directory on another"):
        facts.require_traces(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        probe_mount(tmp_path / "none")
