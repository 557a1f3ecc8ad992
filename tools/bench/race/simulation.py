"""Our own controller on simulated machines: its real run directory, journal and files, in virtual time.

Time jumps from one change to the next: a job starts, ends, fails, or reaches the row at which the study's stopping rule
fires. The controller ticks there and nowhere else, so that it learns of everything at once. The trace of a job is
brought up to date when something happens to that job: a rule cannot fire in between.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from hpcjf.cluster.base import JobClass, JobRequest, JobStatus
from hpcjf.controller.loop import Controller
from hpcjf.core.lifecycle import Phase
from hpcjf.core.stopping import decide
from hpcjf.store.layout import AttemptPaths
from hpcjf.store.messages import AttemptResult, AttemptSpec, StopOrder
from hpcjf.store.traces import TRACE_COLUMNS
from hpcjf.study import Resources, StoppingSection
from hpcjf.types import Cause, Purpose
from race.pool import Job, Pool, Training
from race.problem import Array, Curve

_ROW = np.dtype([*((column.name, column.type) for column in TRACE_COLUMNS), ("crc", "<u4")])
_STATES = {
    Cause.NODE_FAILURE: (JobClass.INFRASTRUCTURE, "NODE_FAIL"),
    Cause.CANCELLED: (JobClass.CANCELLED, "CANCELLED"),
}


@dataclass(slots=True)
class _Attempt:
    """A job and the files that it writes. ``order`` is the stop order that it has seen."""

    job: Job
    name: str
    paths: AttemptPaths
    order: StopOrder | None = None
    written: int = 0


class SimulatedCluster:
    """A scheduler with a queue whose jobs live in ``pool``. ``stopping`` is the study's rule."""

    name = "simulated"
    slots = None

    def __init__(self, pool: Pool, stopping: StoppingSection) -> None:
        self.pool, self._stopping = pool, stopping
        self._attempts: list[_Attempt] = []
        self._open: list[_Attempt] = []

    def submit(self, request: JobRequest) -> str:
        path = Path(request.argument)
        spec = AttemptSpec.read(path)
        training = Training(spec.config_id, spec.model, spec.training_seed)
        looks: tuple[int, ...] = ()
        if spec.purpose is Purpose.SEARCH:
            fired = decide(rows_of(self.pool.curve(training, spec.config), spec.steps), self._stopping)
            # a trial that goes on past the row at which the rule would have fired is judged at its first row
            looks = (max(fired.step, self.pool.saved(training) + 1),) if fired else ()
        job = self.pool.submit(training, spec.config, spec.steps, looks)
        attempt = _Attempt(job, request.name, AttemptPaths(path.parent))
        self._attempts.append(attempt)
        self._open.append(attempt)
        return str(job.number)

    def find(self, job_name: str) -> str | None:
        found = (str(attempt.job.number) for attempt in reversed(self._attempts) if attempt.name == job_name)
        return next(found, None)

    def poll(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        return {job_id: self._status(self._attempts[int(job_id) - 1]) for job_id in job_ids}

    def cancel(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self.pool.cancel(self._attempts[int(job_id) - 1].job)

    def check(self, resources: Resources) -> None:
        """Every job fits."""

    def obey(self) -> None:
        """Let the jobs that run look for their stop orders."""
        for attempt in self._open:
            if attempt.job.started <= self.pool.now and attempt.order is None and attempt.paths.stop.exists():
                attempt.order = StopOrder.read(attempt.paths.stop)
                attempt.job.stop(self.pool.now, attempt.order.cause)

    def write(self) -> None:
        """Write what the jobs have to say of the present moment."""
        for attempt in self._open:
            job, step = attempt.job, attempt.job.step(self.pool.now)
            ended = job.end <= self.pool.now
            if step > attempt.written and (ended or step in job.looks):
                _write_rows(attempt.paths.trace, job, step)
                attempt.written = step
            if ended and job.cause not in _STATES:
                self._result(attempt).write(attempt.paths.result)
        self._open = [attempt for attempt in self._open if attempt.job.end > self.pool.now]

    def _result(self, attempt: _Attempt) -> AttemptResult:
        job, order = attempt.job, attempt.order
        assert job.cause is not None
        step = job.step(job.end)
        done = job.ends[: step - job.start_step]
        seconds = float(done[-1]) - job.started - job.startup if len(done) else 0.0
        return AttemptResult(
            name=attempt.name,
            cause=job.cause,
            step=step,
            start_step=job.start_step,
            score=job.score(step),
            seconds=seconds,
            startup_seconds=job.end - job.started - seconds,
            cpu_seconds=seconds,
            peak_mb=0.0,
            detail=order.why if order and job.cause is order.cause else "",
        )

    def _status(self, attempt: _Attempt) -> JobStatus:
        job, now = attempt.job, self.pool.now
        job_class, state = JobClass.PENDING, "PENDING"
        if job.end <= now:
            job_class, state = _STATES.get(job.cause or Cause.COMPLETED, (JobClass.FINISHED, "COMPLETED"))
        elif job.started <= now:
            job_class, state = JobClass.RUNNING, "RUNNING"
        return JobStatus(str(job.number), job_class, state, name=attempt.name)


def live(controller: Controller, cluster: SimulatedCluster, budget: float) -> Iterator[float]:
    """Tick through the search, up to its end or to the moment at which jobs have cost ``budget`` seconds.

    Yields the CPU seconds of every tick. Final runs are not made.
    """
    while True:
        began = time.process_time()
        controller.tick()
        yield time.process_time() - began
        cluster.obey()
        if controller.state.phase is not Phase.SEARCH or not cluster.pool.jump(budget):
            return
        cluster.write()


def rows_of(curve: Curve, steps: int, start: int = 0) -> NDArray[np.void]:
    """The trace of the steps ``start`` + 1 … ``steps``, as far as they are run, without times. ``[rows]``."""
    last = steps if curve.broken is None else min(steps, curve.broken)
    rows = np.zeros(max(0, last - start), _ROW)
    for column in TRACE_COLUMNS:
        if column.type == "<f8":
            rows[column.name] = np.nan
    rows["seq"], rows["step"] = np.arange(len(rows)), np.arange(start, last) + 1
    for name, values in _columns(curve).items():
        rows[name] = values[start:last]
    rows["skipped"] = np.isnan(rows["kl"])  # a step without an update has no KL
    if curve.broken == last > start:
        rows[-1:]["kl"] = rows[-1:]["reward_mean"] = rows[-1:]["eval_score"] = np.nan
    return rows


def _columns(curve: Curve) -> dict[str, Array]:
    return {
        "kl": curve.kl,
        "reward_mean": curve.reward,
        "reward_std": curve.reward_std,
        "eval_score": curve.score,
    }


def _write_rows(path: Path, job: Job, step: int) -> None:
    """Replace the trace by one that goes up to ``step``, in the format of ``hpcjf.store.traces``, in one go.

    A writer that appends row by row costs thirty times as much.
    """
    rows = rows_of(job.curve, step, job.start_step)
    rows["time"] = job.ends[: len(rows)]
    data, size = memoryview(rows.tobytes()), _ROW.itemsize
    rows["crc"] = [zlib.crc32(data[at : at + size - 4]) for at in range(0, len(data), size)]
    with h5py.File(path, "w", libver=("v110", "v110"), locking=False) as file:
        file.create_dataset("trace", data=rows, maxshape=(None,), chunks=(256,))
