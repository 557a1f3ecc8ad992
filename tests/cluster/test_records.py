"""Records are written once, whole and privately."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcjf.cluster.records import Records


def test_the_first_record_stands(tmp_path: Path) -> None:
    records = Records(tmp_path / "new")
    assert records.claim("a", "job", {"job_id": "1"})
    assert not records.claim("a", "job", {"job_id": "2"})
    assert records.read("a", "job") == {"job_id": "1"}
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.job.json"]


def test_records_are_private(tmp_path: Path) -> None:
    Records(tmp_path / "new").claim("a", "job", {})
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "a.job.json").stat().st_mode & 0o777 == 0o600


def test_a_draft_goes_through_no_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    records = Records(tmp_path)
    (tmp_path / f".a.job.{os.getpid()}").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        records.claim("a", "job", {})
    assert target.read_text() == "mine"


def test_what_cannot_be_read_is_not_there(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert records.read("a", "job") is None
    for text in ("", "{", "[1]", "\xff"):
        (tmp_path / "a.job.json").write_bytes(text.encode("latin-1"))
        assert records.read("a", "job") is None


def test_names_are_those_of_jobs(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert list(records.names()) == []
    records.claim("a.b-1", "job", {})
    records.claim("a.b-1", "end", {})
    records.claim("c", "job", {})
    assert sorted(records.names()) == ["a.b-1", "c"]
