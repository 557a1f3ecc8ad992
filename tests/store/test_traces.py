from __future__ import annotations

import errno
import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hpcjf.errors import DiskFullError, StoreError, UntrustedPathError
from hpcjf.store.traces import OBJECTIVE_COLUMNS, TRACE_COLUMNS, Column, TraceWriter, read_trace, salvage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.h5"


def written(path: Path, rows: int) -> Path:
    with TraceWriter(path) as writer:
        for step in range(rows):
            writer.append(step=step, kl=step / 2)
    return path


def byte_of_row(path: Path, row: int) -> int:
    """Offset in the file of the middle of a row."""
    with h5py.File(path, "r", swmr=True, locking=False) as file:
        data = file["trace"]
        return int(data.id.get_chunk_info(0).byte_offset + data.dtype.itemsize * (row + 0.5))


def plain_write(path: Path) -> Any:
    return h5py.File(path, "r+", libver=("v110", "v110"), locking=False)


def test_columns_of_objectives_are_nan_where_an_objective_has_none_and_absent_in_older_files(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "new.h5", OBJECTIVE_COLUMNS) as writer:
        writer.append(step=1, value_loss=0.5)
    rows = read_trace(tmp_path / "new.h5")
    assert rows["value_loss"].tolist() == [0.5]
    assert all(np.isnan(rows[column.name]).all() for column in OBJECTIVE_COLUMNS if column.name != "value_loss")
    assert read_trace(written(tmp_path / "old.h5", 2))["step"].tolist() == [0, 1]


def test_rows_are_readable_while_the_writer_lives_and_after(path: Path) -> None:
    with TraceWriter(path, extra=("ratio_max",)) as writer:
        for step in (1, 2, 3):
            writer.append(step=step, time=100.0 + step, kl=0.5, eval_score=None, tokens=2**40, skipped=1, ratio_max=9.0)
            rows = read_trace(path)
            assert rows["step"].tolist() == list(range(1, step + 1))
    rows = read_trace(path)
    assert rows["seq"].tolist() == [0, 1, 2]
    assert rows["time"].tolist() == [101.0, 102.0, 103.0]
    assert rows["tokens"].tolist() == [2**40] * 3
    assert rows["skipped"].tolist() == [1] * 3
    assert rows["ratio_max"].tolist() == [9.0] * 3
    assert np.isnan(rows["eval_score"]).all()
    assert np.isnan(rows["loss"]).all()
    assert rows["reward_nonfinite"].tolist() == [0] * 3


def test_reading_goes_on_from_a_row(path: Path) -> None:
    with TraceWriter(path) as writer:
        for step in range(5):
            writer.append(step=step)
        assert read_trace(path, 3)["step"].tolist() == [3, 4]
        assert len(read_trace(path, 5)) == len(read_trace(path, 99)) == 0
        writer.append(step=5)
        assert read_trace(path, 5)["step"].tolist() == [5]


def test_the_dtype_is_fixed_and_ends_in_the_checksum(path: Path) -> None:
    rows = read_trace(written(path, 1))
    assert rows.dtype.names == (*(column.name for column in TRACE_COLUMNS), "crc")
    assert [rows.dtype[name].str for name in ("seq", "step", "kl", "skipped", "tokens", "crc")] == [
        "<u4",
        "<u4",
        "<f8",
        "|u1",
        "<u8",
        "<u4",
    ]


def test_the_sidecar_explains_every_column(path: Path) -> None:
    TraceWriter(path, extra=("a", Column("b", "<f8", "nats", "a figure"))).close()
    columns = json.loads(path.with_suffix(".json").read_text())["columns"]
    assert [each["name"] for each in columns] == [*(column.name for column in TRACE_COLUMNS), "a", "b", "crc"]
    assert all(each["unit"] and each["meaning"] for each in columns)
    assert columns[-2] == {"name": "b", "type": "<f8", "unit": "nats", "meaning": "a figure"}


def test_the_file_is_private_has_no_filters_and_can_grow_only_by_rows(path: Path) -> None:
    """H8, H10, H11: one data set of a fixed-size type, no compression, no way to make more after the start."""
    with TraceWriter(path) as writer:
        assert not {name for name in dir(writer) if not name.startswith("_")} - {"append", "close", "path"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with h5py.File(path, "r") as file:
        assert list(file) == ["trace"]
        data = file["trace"]
        assert (data.compression, data.shuffle, data.fletcher32, len(data.attrs)) == (None, False, False, 0)
        assert 256 <= data.chunks[0] <= 1024
        assert data.dtype.kind == "V"


def test_a_live_file_does_not_grow_with_every_flush(path: Path) -> None:
    """H11: gzip made 123 MB of 0.26 MB."""
    rows = read_trace(written(path, 1000))
    assert path.stat().st_size < 2 * rows.nbytes + 100_000


def test_an_existing_file_is_never_opened_for_writing(path: Path) -> None:
    """H4: a second open with "w" cuts a live file to nothing."""
    with TraceWriter(path) as writer:
        writer.append(step=1)
        sidecar = path.with_suffix(".json").read_text()
        with pytest.raises(StoreError, match=r"trace\.h5"):
            TraceWriter(path, extra=("other",))
        writer.append(step=2)
    assert read_trace(path)["step"].tolist() == [1, 2]
    assert path.with_suffix(".json").read_text() == sidecar


def test_a_link_is_neither_written_nor_read(path: Path) -> None:
    target = written(path.with_name("target.h5"), 3)
    path.symlink_to(target)
    with pytest.raises(StoreError):
        TraceWriter(path)
    with pytest.raises(UntrustedPathError):
        read_trace(path)
    assert len(read_trace(target)) == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 1, "klll": 0.1}, "no column klll"),
        ({"step": 1, "crc": 1}, "no column crc"),
        ({"step": 1, "seq": 1}, "no column seq"),
        ({"kl": 0.1}, "a row needs its step"),
        ({"step": 1, "tokens": math.nan}, "tokens cannot hold nan"),
        ({"step": -1}, "step cannot hold -1"),
        ({"step": 1, "skipped": 256}, "skipped cannot hold 256"),
        ({"step": 1, "kl": "much"}, "kl cannot hold 'much'"),
    ],
)
def test_a_bad_row_is_refused_and_the_next_good_one_is_taken(path: Path, values: dict[str, Any], message: str) -> None:
    with TraceWriter(path) as writer:
        with pytest.raises(StoreError, match=message):
            writer.append(**values)
        writer.append(step=1)
    assert read_trace(path)["step"].tolist() == [1]


@pytest.mark.parametrize("extra", [("kl",), ("a", "a"), ("crc",), ("A b",), ("",)])
def test_bad_extra_columns_are_refused_before_the_file_exists(path: Path, extra: tuple[str, ...]) -> None:
    with pytest.raises(StoreError, match="bad or double column names"):
        TraceWriter(path, extra=extra)
    assert not path.exists()


def test_a_closed_writer_takes_no_rows_and_closes_twice(path: Path) -> None:
    writer = TraceWriter(path)
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.append(step=1)


@pytest.mark.parametrize(("seconds", "syncs"), [(0.0, 20), (1e9, 0)])
def test_rows_reach_the_disk_at_a_bounded_rate_and_at_close(
    path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, syncs: int
) -> None:
    done: list[int] = []
    with TraceWriter(path, fsync_seconds=seconds) as writer:
        monkeypatch.setattr(os, "fsync", done.append)
        for step in range(20):
            writer.append(step=step)
        assert len(done) == syncs
    assert len(done) == syncs + 1


@pytest.mark.parametrize("row", [0, 4, 9])
def test_reading_stops_at_a_damaged_row(path: Path, row: int) -> None:
    """H17: the checksum of the row tells."""
    place = byte_of_row(written(path, 10), row)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert read_trace(path)["step"].tolist() == list(range(row))
    assert read_trace(path, row + 1)["step"].tolist() == list(range(row + 1, 10))


def test_rows_of_zeros_and_rows_of_another_place_are_no_rows(path: Path) -> None:
    """H16: after a full disk a longer data set with a tail of zeros was seen."""
    written(path, 3)
    with plain_write(path) as file:
        file["trace"].resize((8,))
    assert len(read_trace(path)) == 3
    with plain_write(path) as file:
        file["trace"][3] = file["trace"][2]
    assert len(read_trace(path)) == 3
    with plain_write(path) as file:
        file["trace"][0] = np.zeros((), file["trace"].dtype)
    assert len(read_trace(path)) == 0


@pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "Unable to synchronously open file (unable to lock file, errno = 11)"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        OSError(errno.ESTALE, "Stale file handle"),
        OSError("Unable to open file (unable to lock file, errno = 11, error message = 'Resource unavailable')"),
        OSError("Unable to open file (file is not already open for SWMR writing)"),
        OSError("Unable to open file (file is already open for write (may use <h5clear file> to clear flags))"),
        OSError("Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)"),
    ],
    ids=str,
)
def test_a_file_between_two_states_is_no_new_data(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """H1, P19, P22: these messages mean "later", never a failed trial."""
    written(path, 2)

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(h5py, "File", fails)
        assert len(read_trace(path)) == 0
    assert len(read_trace(path)) == 2


CUT = """
import sys
from pathlib import Path
from hpcjf.store.traces import read_trace
path = Path(sys.argv[1])
whole = path.read_bytes()
for size in {*range(0, 4000, 37), *range(4000, len(whole), 997)}:
    path.write_bytes(whole[:size])
    steps = read_trace(path)["step"].tolist()
    assert steps == list(range(len(steps))), (size, steps)
"""


def test_a_file_cut_anywhere_neither_hangs_nor_raises_nor_lies(path: Path) -> None:
    """H1, P17, P19: HDF5 by itself waits for ever on torn metadata, in C, where no signal of ours arrives."""
    written(path, 40)
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_file_and_one_without_its_data_set_are_no_new_data(path: Path) -> None:
    assert len(read_trace(path)) == 0
    with h5py.File(path, "x", libver=("v110", "v110"), locking=False) as file:
        file.flush()
        assert len(read_trace(path)) == 0


def test_a_data_set_of_something_else_is_refused(path: Path) -> None:
    with h5py.File(path, "x", libver=("v110", "v110")) as file:
        file["trace"] = np.zeros(3)
    with pytest.raises(StoreError, match="not a trace"):
        read_trace(path)


def test_a_trace_without_permission_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path, 1)

    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(h5py, "File", fails)
    with pytest.raises(StoreError, match="Permission denied"):
        read_trace(path)


@pytest.mark.parametrize("number", [28, 122, 27])
def test_a_full_disk_is_recognised_from_the_text_of_hdf5(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """H16: the number stands in the message of a RuntimeError only."""
    writer = TraceWriter(path)
    writer.append(step=1)

    def fails(*_: object) -> None:
        raise RuntimeError(f"Unable to flush (file write failed: file descriptor = 3, errno = {number}, error message)")

    with monkeypatch.context() as patch:
        patch.setattr(h5py.File, "flush", fails)
        with pytest.raises(DiskFullError, match=r"trace\.h5: disk full"):
            writer.append(step=2)
    with pytest.raises(StoreError, match="given up"):
        writer.append(step=3)
    writer.close()


def test_salvage_makes_a_plain_file_of_the_good_rows(path: Path) -> None:
    """H19: no h5clear; a read in SWMR mode, a copy, a rename."""
    place = byte_of_row(written(path, 10), 6)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert salvage(path) == 6
    with h5py.File(path, "r") as file:
        assert file["trace"]["step"].tolist() == list(range(6))
    assert salvage(path) == 6
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["trace.h5", "trace.json"]


def test_salvage_leaves_a_file_without_rows_alone(path: Path) -> None:
    path.write_bytes(b"not hdf5")
    assert salvage(path) == 0
    assert path.read_bytes() == b"not hdf5"
