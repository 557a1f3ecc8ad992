"""Who could have written a path (L7, and the rules for shared machines)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcjf.errors import UntrustedPathError
from hpcjf.store.trust import check_path, check_stat, open_regular


def test_own_private_folders_pass(tmp_path: Path) -> None:
    check_path(tmp_path / "not" / "there" / "yet", os.geteuid())


@pytest.mark.parametrize("mode", [0o777, 0o722])
def test_a_world_writable_parent_is_refused(tmp_path: Path, mode: int) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(mode)
    with pytest.raises(UntrustedPathError, match=f"{parent}: other users can write it; run `chmod go-w"):
        check_path(parent / "run", os.geteuid())


def test_the_sticky_bit_makes_a_parent_safe_but_not_the_folder_itself(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o1777)
    check_path(parent / "run", os.geteuid())
    with pytest.raises(UntrustedPathError):
        check_path(parent, os.geteuid())


def test_group_write_is_refused_for_a_group_that_others_share(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    found = list(tmp_path.stat())
    found[5] = 2**31 - 7
    with pytest.raises(UntrustedPathError, match="other users can write"):
        check_stat(tmp_path, os.stat_result(found), os.geteuid())


def test_a_foreign_owner_is_named(tmp_path: Path, as_stranger: Callable[[Path], int]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    uid = as_stranger(folder)
    with pytest.raises(UntrustedPathError, match="belongs to"):
        check_path(folder / "journal", uid)


def test_the_target_of_a_linked_parent_is_checked_too(tmp_path: Path) -> None:
    unsafe = tmp_path / "unsafe"
    (unsafe / "deep").mkdir(parents=True)
    unsafe.chmod(0o777)
    (tmp_path / "link").symlink_to(unsafe / "deep")
    with pytest.raises(UntrustedPathError, match=str(unsafe)):
        check_path(tmp_path / "link" / "run", os.geteuid())


def test_links_and_fifos_are_not_opened(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(UntrustedPathError, match="not a regular file"):
                open_regular(tmp_path / name, flags, owned_by=None)
    assert victim.read_text() == "precious"
