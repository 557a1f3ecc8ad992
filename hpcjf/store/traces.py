"""Live traces: one HDF5 file an attempt, written in SWMR mode, read while it grows.

HDF5 promises readers only rows added to data sets that existed before SWMR began (no new data sets, no variable
length, no attributes), and h5py does not object when that is broken. So the file holds one data set of one
fixed-size compound type, made before SWMR begins, and the writer can only append to it.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import h5py
import numpy as np

from hpcjf.errors import DiskFullError, StoreError
from hpcjf.store.atomic import write_json
from hpcjf.store.disk import FULL, disk_errors, fsync_folder
from hpcjf.store.trust import untrusted_kind

log = logging.getLogger(__name__)
Rows = np.ndarray[Any, np.dtype[np.void]]


class Column(NamedTuple):
    """A column of the trace: its NumPy type, its unit and what it says. Float columns hold NaN for "not measured"."""

    name: str
    type: str
    unit: str
    meaning: str


TRACE_COLUMNS = (
    Column("seq", "<u4", "rows", "number of the row in the file, from 0"),
    Column("step", "<u4", "global steps", "global step that the row ends"),
    Column("time", "<f8", "s", "wall clock at the end of the step, seconds since 1970 UTC"),
    Column("cpu_seconds", "<f8", "s", "CPU time of the process so far"),
    Column("kl", "<f8", "nats/token", "mean KL divergence of the policy to the reference policy"),
    Column("reward_mean", "<f8", "1", "mean reward of the step's completions"),
    Column("reward_std", "<f8", "1", "standard deviation of the step's rewards"),
    Column("reward_nonfinite", "<u4", "completions", "rewards that were NaN or infinite and left out"),
    Column("eval_score", "<f8", "1", "greedy score on the validation rows; NaN between evaluations"),
    Column("entropy", "<f8", "nats/token", "mean entropy of the policy's next-token distribution"),
    Column("loss", "<f8", "1", "mean loss over the step's optimiser updates"),
    Column("grad_norm", "<f8", "1", "mean norm of the gradient before clipping"),
    Column("clip_fraction", "<f8", "1", "share of tokens whose importance ratio was clipped"),
    Column("response_length", "<f8", "tokens", "mean length of the completions"),
    Column("truncated_fraction", "<f8", "1", "share of completions cut at the length limit"),
    Column("zero_variance_fraction", "<f8", "1", "share of prompt groups whose rewards are all equal"),
    Column("skipped", "<u1", "flag", "1 where no optimiser update was made"),
    Column("tokens", "<u8", "tokens", "completion tokens sampled in the step"),
    Column("learning_rate", "<f8", "1", "learning rate of the step's last update"),
)
"""The columns of every trace. Those of the objective follow, and the row's checksum comes last."""

OBJECTIVE_COLUMNS = (
    Column("redraws", "<f8", "batches", "further batches of prompts that dynamic sampling drew"),
    Column("groups", "<f8", "groups", "prompt groups that dynamic sampling kept for the loss"),
    Column("value_loss", "<f8", "1", "mean loss of the value head, before its coefficient"),
    Column("sft_loss", "<f8", "nats/token", "mean negative log-probability of the demonstrations' tokens"),
    Column("pairs", "<f8", "pairs", "prompt groups that gave a pair of a better and a worse response"),
    Column("margin", "<f8", "1", "mean over pairs of how much better the policy takes the better response to be"),
    Column("margin_accuracy", "<f8", "1", "share of pairs with a margin above 0"),
    Column("hargo_advantage_mean", "<f8", "1", "mean of the scaled advantages A'"),
    Column("hargo_advantage_spread", "<f8", "1", "their standard deviation in a group, mean over groups"),
    Column("hargo_confidence_mean", "<f8", "1", "mean of the confidences c"),
    Column("hargo_confidence_spread", "<f8", "1", "their standard deviation in a group, mean over groups"),
    Column("hargo_distinction_mean", "<f8", "1", "mean of the distinctions d"),
    Column("hargo_distinction_spread", "<f8", "1", "their standard deviation in a group, mean over groups"),
    Column("hargo_weight_mean", "<f8", "1", "mean of the weights w"),
    Column("hargo_weight_spread", "<f8", "1", "their standard deviation in a group, mean over groups"),
    Column("hargo_fallback", "<f8", "1", "share of groups with equal weights for want of a difference"),
    Column("hargo_level", "<f8", "nats/token", "running log-probability that confidence is measured from"),
)
"""What only some objectives have, NaN with the others. Files of older versions lack them."""

_CRC = Column("crc", "<u4", "CRC-32", "checksum of the row's other bytes")
_DATASET = "trace"
_CHUNK_ROWS = 256
# A reader that locks would block the writer, and some mounts cannot lock at all (errno 37, 95, 524). Nothing is
# lost: file names are unique, files are made with "x" and SWMR drops its lock anyway.
_LOCKING = False
_abandoned: list[object] = []
"""Handles of failed writers: as long as they are referred to, HDF5 leaves them alone until the process exits."""
_READ_ATTEMPTS = 20
"""How often a SWMR reader looks again at metadata with a bad checksum; the pauses double, from 1 ns. HDF5's own
100 is for ever: one torn file would hang the controller."""
_NOT_YET = frozenset({errno.EAGAIN, errno.ENOENT, errno.ESTALE, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT})
_NOT_YET_TEXTS = (
    "not already open for SWMR writing",
    "already open for write",
    "truncated file",
    "file signature not found",
    "checksum after all read attempts",
    "unable to read superblock",
    "unable to load superblock",
)


class TraceWriter:
    """The only writer of ``path``, which must not exist; the sidecar ``path`` with suffix .json is written too.

    ``extra`` are float columns of the objective, names or whole columns. A row is readable at once, and on disk
    ``fsync_seconds`` later at most. A process that dies leaves every row it appended.

    :raises StoreError: the file exists, or a bad or double column name.
    :raises DiskFullError: no room. HDF5 ends such a process with SIGSEGV at interpreter exit: put results on disk
        first, and leave by ``os._exit`` if the exit status matters.
    """

    def __init__(self, path: Path, extra: Sequence[str | Column] = (), *, fsync_seconds: float = 5.0) -> None:
        self.path = path
        columns = (*TRACE_COLUMNS, *(_extra(each) for each in extra), _CRC)
        self._dtype = _dtype(columns)
        self._floats = tuple(column.name for column in columns if column.type == "<f8")
        self._fsync_seconds, self._synced = fsync_seconds, time.monotonic()
        self._rows = 0
        self._file: Any = None
        self._data: Any = None
        try:
            self._start()
            write_json(path.with_suffix(".json"), {"columns": [column._asdict() for column in columns]})
        except StoreError:
            self._give_up()
            raise

    def _start(self) -> None:
        with _hdf5_errors(self.path):
            self._file = h5py.File(self.path, "x", libver=("v110", "v110"), locking=_LOCKING)
            self._data = _make_dataset(self._file, self._dtype)
            self._file.swmr_mode = True
            self._descriptor = int(self._file.id.get_vfd_handle())
        with disk_errors(self.path):
            self.path.chmod(0o600)
            fsync_folder(self.path.parent)

    def append(self, **values: float | int | None) -> None:
        """Add one row; ``step`` is required, ``time`` is now. Floats left out, or None, are NaN; counts are 0.

        :raises StoreError: a column that does not exist, a value that does not fit, or the writer is closed.
        :raises DiskFullError: the row may be lost, those before are readable; nothing more can be appended.
        """
        row = self._row({"time": time.time(), **values})
        if self._file is None:
            raise StoreError("closed, or given up after an error", where=str(self.path))
        try:
            with _hdf5_errors(self.path):
                self._data.resize((self._rows + 1,))
                self._data[self._rows : self._rows + 1] = row
                self._file.flush()
                if time.monotonic() - self._synced >= self._fsync_seconds:
                    self._sync()
        except StoreError:
            self._give_up()
            raise
        self._rows += 1

    def _row(self, values: dict[str, float | int | None]) -> Rows:
        row = np.zeros(1, self._dtype)
        for name in self._floats:
            row[name] = np.nan
        unknown = values.keys() - set(self._dtype.names or ()) | values.keys() & {"seq", "crc"}
        if unknown or values.get("step") is None:
            what = f"no column {', '.join(sorted(unknown))}" if unknown else "a row needs its step"
            raise StoreError(what, where=str(self.path), fix="declare extra columns before the first row")
        for name, value in values.items():
            if value is not None:
                try:
                    row[name] = value
                except (OverflowError, TypeError, ValueError) as error:
                    raise StoreError(f"{name} cannot hold {value!r}", where=str(self.path)) from error
        row["seq"] = self._rows
        row["crc"] = _checksum(row.tobytes()[: -np.dtype(_CRC.type).itemsize])
        return row

    def _sync(self) -> None:
        # A flush of HDF5 ends in the page cache.
        os.fsync(self._descriptor)
        self._synced = time.monotonic()

    def _give_up(self) -> None:
        """Never close after a failed write: HDF5 tries it again while closing, fails, and kills the process."""
        _abandoned.append((self._file, self._data))
        self._file = self._data = None

    def close(self) -> None:
        """:raises DiskFullError: see :meth:`append`."""
        if self._file is None:
            return
        try:
            with _hdf5_errors(self.path):
                self._file.flush()
                self._sync()
                self._file.close()
        except StoreError:
            self._give_up()
            raise
        self._file = self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _extra(column: str | Column) -> Column:
    return column if isinstance(column, Column) else Column(column, "<f8", "1", "figure of the objective")


def _dtype(columns: Sequence[Column]) -> np.dtype[np.void]:
    names = [column.name for column in columns]
    bad = [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or names.count(name) > 1]
    if bad:
        raise StoreError(f"bad or double column names: {', '.join(sorted(set(bad)))}", fix="rename the extra columns")
    return np.dtype([(column.name, column.type) for column in columns])


def _make_dataset(file: Any, dtype: np.dtype[np.void], rows: int = 0) -> Any:
    # No filters: gzip with a flush a row made 123 MB of 0.26 MB.
    return file.create_dataset(_DATASET, shape=(rows,), maxshape=(None,), dtype=dtype, chunks=(_CHUNK_ROWS,))


@contextmanager
def _hdf5_errors(path: Path) -> Iterator[None]:
    """HDF5 reports a full disk as RuntimeError or OSError with the number in its text only."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if _number(error) in FULL:
            raise DiskFullError(
                "disk full while writing the trace", where=str(path), fix="free space or raise the quota"
            ) from error
        raise StoreError(str(error), where=str(path)) from error


def _number(error: BaseException) -> int | None:
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        return number
    found = re.search(r"errno = (\d+)", str(error))
    return int(found.group(1)) if found else None


def _checksum(data: bytes | memoryview) -> int:
    return zlib.crc32(data)


def _bounded(access: Any) -> None:
    """An h5py driver: plain POSIX reads, with a bound that h5py itself has no name for."""
    access.set_fapl_sec2()
    library = ctypes.CDLL(h5py.h5p.__file__)
    if library.H5Pset_metadata_read_attempts(ctypes.c_int64(access.id), ctypes.c_uint(_READ_ATTEMPTS)) < 0:
        raise RuntimeError("HDF5 does not take a bound on metadata reads")


h5py.register_driver("hpcjf_bounded", _bounded)


def read_trace(path: Path, start: int = 0) -> Rows:
    """Rows from number ``start`` on, up to the first that is damaged or not there yet. ``[rows]``, structured.

    Empty when there is nothing new, and also while the file is not there, not visible, or between two states of
    its writer; what has become of the attempt is not the trace's to tell. Opens and closes on every call.

    :raises UntrustedPathError: not a regular file.
    :raises StoreError: no permission, or no trace.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise untrusted_kind(path)
        file = h5py.File(path, "r", driver="hpcjf_bounded", swmr=True, locking=_LOCKING)
    except (OSError, RuntimeError) as error:
        if _number(error) in _NOT_YET or any(text in str(error) for text in _NOT_YET_TEXTS):
            return _no_rows()
        raise StoreError(str(error), where=str(path)) from error
    try:
        with file:
            rows = _read_rows(file, start)
    except (OSError, RuntimeError, KeyError) as error:
        log.debug("%s: nothing readable yet: %s", path, error)
        return _no_rows()
    if rows.dtype.names is None or not {column.name for column in (*TRACE_COLUMNS, _CRC)} <= set(rows.dtype.names):
        raise StoreError("not a trace: columns are missing", where=str(path))
    return rows[: _valid(rows, start)]


def _no_rows() -> Rows:
    return np.empty(0, _dtype((*TRACE_COLUMNS, _CRC)))


def _read_rows(file: Any, start: int) -> Rows:
    data = file[_DATASET]
    data.refresh()
    rows: Rows = data[start : max(start, data.shape[0])]
    return rows


def _valid(rows: Rows, start: int) -> int:
    """How many rows from the first on are whole. A full disk leaves rows of zeros, a crash half rows."""
    size = rows.dtype.itemsize
    data = memoryview(rows.tobytes())
    crc_size = np.dtype(_CRC.type).itemsize
    for number, (seq, crc) in enumerate(zip(rows["seq"].tolist(), rows["crc"].tolist(), strict=True)):
        row = data[number * size : (number + 1) * size]
        if seq != start + number or crc != _checksum(row[:-crc_size]):
            return number
    return len(rows)


def salvage(path: Path) -> int:
    """Replace a dead writer's file by a clean one that plain HDF5 tools open. Returns the rows saved.

    Only for attempts that have ended: a live writer would go on writing to the file that is gone. Where no row can
    be read the file stays as it is.

    :raises DiskFullError: the file stays as it is.
    """
    rows = read_trace(path)
    if not len(rows):
        return 0
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with _hdf5_errors(path), h5py.File(temporary, "x", libver=("v110", "v110"), locking=_LOCKING) as file:
            _make_dataset(file, rows.dtype, len(rows))[:] = rows
            file.flush()
            os.fsync(int(file.id.get_vfd_handle()))
        with disk_errors(path):
            temporary.chmod(0o600)
            os.replace(temporary, path)
            fsync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()
    return len(rows)


def final_kl(rows: Rows) -> float | None:
    """Mean of the last five finite KL values, nats per token; None without any."""
    known = rows["kl"][np.isfinite(rows["kl"])][-5:]
    return float(known.mean()) if len(known) else None
