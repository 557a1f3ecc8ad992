from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcjf.errors import DiskFullError, StoreError, UntrustedPathError
from hpcjf.store.atomic import MissingFileError, publish_folder, read_json, write_bytes, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    old = os.umask(0)
    try:
        write_json(path, {"b": [1, "ü"], "a": None})
        write_json(path, {"b": [2, "ü"], "a": None})
    finally:
        os.umask(old)
    assert read_json(path, owned_by=os.geteuid()) == {"a": None, "b": [2, "ü"]}
    assert path.read_text() == '{"a":null,"b":[2,"\\u00fc"]}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["a.json"]


def test_figures_that_are_not_finite_survive(tmp_path: Path) -> None:
    write_json(tmp_path / "a", [math.nan, math.inf])
    nan, inf = read_json(tmp_path / "a", owned_by=None)
    assert math.isnan(nan)
    assert inf == math.inf


def test_the_order_is_file_on_disk_then_replace_then_folder_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L19: the temporary file lies in the target's own folder."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def seen_replace(old: Path, new: Path) -> None:
        assert old.parent == new.parent
        calls.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    write_text(tmp_path / "a", "text")
    assert calls == ["file", "replace", "folder"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(DiskFullError, match="free space or raise the quota"):
            write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_other_faults_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/a: No such file") as caught:
        write_bytes(tmp_path / "nowhere" / "a", b"")
    assert not isinstance(caught.value, DiskFullError)


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    write_bytes(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_missing_file_is_both_a_store_error_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError) as caught:
        read_json(tmp_path / "a", owned_by=None)
    assert isinstance(caught.value, StoreError)
    assert isinstance(caught.value, FileNotFoundError)
    assert str(caught.value) == f"{tmp_path / 'a'}: not there"


def test_a_stale_handle_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: a peer unlinked the file on NFS."""

    def stale(*_: object) -> int:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "open", stale)
    with pytest.raises(MissingFileError):
        read_json(tmp_path / "a", owned_by=None)


def test_half_a_file_is_named_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a":')
    with pytest.raises(StoreError, match=r"a: not JSON.*; the file is damaged"):
        read_json(tmp_path / "a", owned_by=None)


def test_a_planted_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    """L7: a link at our path leads to a victim's file."""
    victim, path = tmp_path / "victim", tmp_path / "a"
    victim.write_text("{}")
    path.symlink_to(victim)
    with pytest.raises(UntrustedPathError, match="not a regular file"):
        read_json(path, owned_by=None)
    write_json(path, [1])
    assert victim.read_text() == "{}"
    assert not path.is_symlink()


def test_another_users_file_is_refused_unless_asked_for(tmp_path: Path, as_stranger: Callable[[Path], int]) -> None:
    path = tmp_path / "a"
    write_json(path, 1)
    uid = as_stranger(path)
    with pytest.raises(UntrustedPathError, match="belongs to"):
        read_json(path, owned_by=uid)
    assert read_json(path, owned_by=None) == 1
    assert read_json(path, owned_by=path.stat().st_uid) == 1


def test_a_file_that_anybody_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_json(path, 1)
    path.chmod(0o666)
    with pytest.raises(UntrustedPathError, match="other users can write"):
        read_json(path, owned_by=os.geteuid())


def test_a_folder_appears_whole_and_never_over_another(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_text(name)
    publish_folder(tmp_path / "one", tmp_path / "final")
    with pytest.raises(StoreError, match="final"):
        publish_folder(tmp_path / "two", tmp_path / "final")
    assert (tmp_path / "final" / "sub" / "file").read_text() == "one"
    assert names(tmp_path) == ["final", "two"]
