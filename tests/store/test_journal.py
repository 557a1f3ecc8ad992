from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjf.errors import DiskFullError, StoreError, UntrustedPathError
from hpcjf.store.journal import JournalReader, JournalWriter, read_journal

EVENTS: list[dict[str, Any]] = [{"event": "submitted", "trial": n, "name": f"ü\n{n}"} for n in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "controller.jsonl"
    with JournalWriter(path) as journal:
        for event in EVENTS:
            journal.append(event)
    return path


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def test_events_come_back_in_order_and_across_reopening(path: Path) -> None:
    with JournalWriter(path) as journal:
        assert journal.problems == ()
        journal.append({"event": "more"})
    assert read_journal(path) == ([*EVENTS, {"event": "more"}], [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path) == ["controller.jsonl"]


def test_no_file_is_no_events(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none") == ([], [])


def test_an_event_is_on_disk_with_one_write_before_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P14: commit per event."""
    calls: list[str] = []
    write, fsync = os.write, os.fsync
    with JournalWriter(path) as journal:
        monkeypatch.setattr(os, "write", lambda *a: calls.append("write") or write(*a))
        monkeypatch.setattr(os, "fsync", lambda *a: calls.append("fsync") or fsync(*a))
        journal.append({"event": "x" * 100_000})
    assert calls == ["write", "fsync"]


def test_a_tail_torn_at_any_byte_is_skipped_then_set_aside_and_writing_goes_on(path: Path) -> None:
    """L8: half lines in a journal after a crash."""
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    assert len(whole) - last > 40
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        events, problems = read_journal(path)
        assert events == EVENTS[:-1]
        assert len(problems) == (cut > last)
        with JournalWriter(path) as journal:
            assert list(journal.problems) == problems
            journal.append({"event": "next"})
        aside = path.with_name(path.name + ".torn-1")
        assert aside.exists() == (cut > last)
        if cut > last:
            assert aside.read_bytes() == whole[last:cut]
            aside.unlink()
        assert read_journal(path) == ([*EVENTS[:-1], {"event": "next"}], [])


def test_torn_tails_are_numbered(path: Path) -> None:
    for text in ("first", "second"):
        with path.open("a") as file:
            file.write(text)
        JournalWriter(path).close()
    assert names(path) == ["controller.jsonl", "controller.jsonl.torn-1", "controller.jsonl.torn-2"]
    assert path.with_name("controller.jsonl.torn-2").read_text() == "second"


def test_a_damaged_record_is_skipped_reported_and_kept_aside(path: Path) -> None:
    damaged = path.read_bytes().replace(b'"trial":1', b'"trial":7')
    path.write_bytes(damaged)
    rest = [EVENTS[0], *EVENTS[2:]]
    events, problems = read_journal(path)
    assert events == rest
    assert problems == [f"{path}: line 2: wrong checksum; record skipped"]
    with JournalWriter(path) as journal:
        assert list(journal.problems) == problems
        journal.append({"event": "next"})
    assert path.with_name(path.name + ".damaged-1").read_bytes() == damaged
    assert read_journal(path) == ([*rest, {"event": "next"}], [])


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_damage_costs_only_the_records_it_touches(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        with JournalWriter(path) as journal:
            for event in EVENTS:
                journal.append(event)
        whole = path.read_bytes()
        place = data.draw(st.integers(0, len(whole) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
        path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        hit = whole[:place].count(b"\n")
        gone = {hit, hit + 1} if whole[place : place + 1] == b"\n" else {hit}
        expected = [event for number, event in enumerate(EVENTS) if number not in gone]
        events, problems = read_journal(path)
        assert events == expected
        assert problems
        JournalWriter(path).close()
        assert read_journal(path) == (expected, [])


@pytest.mark.parametrize("junk", [b"", b"\n", b"\x00" * 4096, b"{}\n", b"00000000 2 {}\n", b"0 0 \n", b"a b c\n"])
def test_junk_is_never_an_event(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(junk)
    path.chmod(0o600)
    events, problems = read_journal(path)
    assert events == []
    assert bool(problems) == bool(junk)


def test_a_failed_append_leaves_the_journal_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return write(descriptor, data[: len(data) - 10])

    with JournalWriter(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(DiskFullError):
                journal.append({"event": "lost"})
        assert path.read_bytes() == before
        journal.append({"event": "kept"})
    assert read_journal(path) == ([*EVENTS, {"event": "kept"}], [])


@pytest.mark.parametrize("fault", ["append", "replace", "remove"])
def test_a_second_writer_is_noticed_before_anything_is_lost(path: Path, fault: str) -> None:
    with JournalWriter(path) as journal:
        if fault == "append":
            with JournalWriter(path) as other:
                other.append({"event": "other"})
        elif fault == "replace":
            path.with_name("new").write_bytes(path.read_bytes())
            path.with_name("new").replace(path)
        else:
            path.unlink()
        left = path.read_bytes() if path.exists() else None
        with pytest.raises(StoreError, match="changed under its only writer"):
            journal.append({"event": "mine"})
        assert (path.read_bytes() if path.exists() else None) == left


def test_a_planted_link_is_refused(path: Path) -> None:
    """L7"""
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(UntrustedPathError):
        JournalWriter(link)
    with pytest.raises(UntrustedPathError):
        read_journal(link)
    assert read_journal(path)[0] == EVENTS


def test_an_event_that_is_not_json_is_refused_before_it_is_written(path: Path) -> None:
    with JournalWriter(path) as journal, pytest.raises(TypeError):
        journal.append({"path": path})
    assert read_journal(path) == (EVENTS, [])


def test_a_reader_goes_on_where_it_was_and_waits_for_the_end_of_a_record(path: Path) -> None:
    reader = JournalReader(path)
    assert reader.read() == EVENTS
    assert reader.read() == []
    whole = path.read_bytes()
    with JournalWriter(path) as journal:
        journal.append({"event": "a"})
        journal.append({"event": "b"})
    more = path.read_bytes()[len(whole) :]
    for cut in range(len(more)):
        path.write_bytes(whole + more[:cut])
        fresh = JournalReader(path)
        fresh.read()
        path.write_bytes(whole + more)
        reader = JournalReader(path)
        reader._offset = fresh._offset
        assert reader.read() == [{"event": "a"}, {"event": "b"}][more[:cut].count(b"\n") :]


def test_a_reader_skips_a_damaged_record_and_bears_no_file(path: Path, tmp_path: Path) -> None:
    reader = JournalReader(path)
    path.write_bytes(path.read_bytes().replace(b'"trial":1', b'"trial":7'))
    assert reader.read() == [EVENTS[0], *EVENTS[2:]]
    assert JournalReader(tmp_path / "none").read() == []


def test_the_writer_gives_what_it_found_without_what_it_set_aside(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"trial":1', b'"trial":7') + b"torn")
    found: list[dict[str, Any]] = []
    with JournalWriter(path, found.append) as journal:
        assert len(journal.problems) == 2
        journal.append({"event": "next"})
    assert found == [EVENTS[0], *EVENTS[2:]]
    assert read_journal(path)[0] == [*found, {"event": "next"}]
