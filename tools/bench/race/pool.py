"""Machines in virtual time: workers behind one queue, jobs that train along a problem's curves, nodes that fail.

Everything that both our own controller and the peers run on: one clock, one way to count costs, one set of checkpoints.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.types import Cause, Config
from race.problem import Array, Curve, Problem

_SEEDS = 1_000_003
"""Distance between the noise of two training seeds of one race seed."""


@dataclass(frozen=True, slots=True)
class Site:
    """What every method of a race gets. ``latency``: virtual seconds from a submission to the earliest start, not 0:
    a controller sees its jobs start when it looks again.

    ``failures``: probability that a job's node fails. ``save_every``: steps between checkpoints, None without any.
    """

    workers: int = 4
    latency: float = 1.0
    failures: float = 0.0
    save_every: int | None = 10


class Training(NamedTuple):
    """What has checkpoints of its own: a configuration on a model with a training seed."""

    config_id: str
    model: str
    seed: int = 0


@dataclass(slots=True)
class Job:
    """One job. ``ends`` are the times at which its steps ``start_step`` + 1 … end, as far as it will get by itself."""

    number: int
    training: Training
    config: Config
    goal: int
    looks: tuple[int, ...]
    """Steps at which somebody wants to see it."""
    submitted: float
    curve: Curve
    startup: float
    started: float = math.inf
    start_step: int = 0
    ends: Array = field(default_factory=lambda: np.empty(0))
    end: float = math.inf
    cause: Cause | None = None
    """How it ends, known from its start on."""

    def step(self, now: float) -> int:
        """The step reached by ``now``."""
        return self.start_step + int(np.searchsorted(self.ends, min(now, self.end), side="right"))

    def score(self, step: int) -> float | None:
        """What an evaluation shows there: between those of the curve where it has none. None without any.

        Where training broke, nothing is evaluated: the newest score from before is all that there is.
        """
        curve = self.curve
        if step == curve.broken:
            return curve.score_at(step - 1)
        known = np.flatnonzero(np.isfinite(curve.score[: (curve.broken or len(curve.score) + 1) - 1]))
        return float(np.interp(step - 1, known, curve.score[known])) if len(known) else None

    def start(self, now: float, step: int) -> None:
        self.started, self.start_step = now, step
        last = self.goal if self.curve.broken is None else min(self.goal, self.curve.broken)
        self.ends = now + self.startup + np.cumsum(_durations(self.curve, last)[step:])
        self.end = float(self.ends[-1]) if len(self.ends) else now + self.startup
        self.cause = Cause.DIVERGED if self.curve.broken == last > step else Cause.COMPLETED

    def stop(self, now: float, cause: Cause) -> None:
        """End at the next step boundary, unless it ends by itself before or there."""
        later = self.ends[self.ends >= now]
        boundary = self.started + self.startup
        if now > boundary:
            boundary = float(later[0]) if len(later) else math.inf
        self.cut(boundary, cause)

    def cut(self, end: float, cause: Cause) -> None:
        """End at ``end``, in the middle of a step if need be, unless it ends before."""
        if end < self.end:
            self.end, self.cause = float(end), cause

    def next_look(self, now: float) -> float:
        """When it next reaches a step that somebody wants to see."""
        coming = (s for s in self.looks if self.step(now) < s <= self.start_step + len(self.ends))
        return min((float(self.ends[s - self.start_step - 1]) for s in coming), default=math.inf)


class Pool:
    """The clock ``now`` and the jobs. Time moves in ``jump`` only."""

    def __init__(self, problem: Problem, seed: int, site: Site) -> None:
        self.problem, self.seed, self.site = problem, seed, site
        self.now = 1.0  # 0 reads as "never" in places
        self.jobs: list[Job] = []
        self._queue: deque[Job] = deque()
        self._running: list[Job] = []
        self._saved: dict[Training, int] = {}
        self._curves: dict[Training, Curve] = {}
        self._spent = 0.0

    def submit(self, training: Training, config: Config, goal: int, looks: tuple[int, ...] = ()) -> Job:
        """Queue a job that trains to ``goal``, from the newest checkpoint at or before it."""
        curve, startup = self.curve(training, config), self.problem.startup_seconds(training.model)
        job = Job(len(self.jobs) + 1, training, config, goal, looks, self.now, curve, startup)
        self.jobs.append(job)
        self._queue.append(job)
        self._start()
        return job

    def cancel(self, job: Job) -> None:
        """End a job at once, wherever it stands."""
        if job in self._queue:
            self._queue.remove(job)
            job.end, job.cause = self.now, Cause.CANCELLED
        elif job in self._running:
            job.cut(self.now, Cause.CANCELLED)
            self._change()

    def curve(self, training: Training, config: Config) -> Curve:
        if training not in self._curves:
            seed = self.seed + _SEEDS * training.seed
            self._curves[training] = self.problem.curve(config, training.model, seed)
        return self._curves[training]

    def saved(self, training: Training) -> int:
        """Step of the newest checkpoint, 0 where there is none."""
        return self._saved.get(training, 0)

    @property
    def active(self) -> bool:
        return bool(self._running or self._queue)

    @property
    def running(self) -> tuple[Job, ...]:
        return tuple(self._running)

    @property
    def cost(self) -> float:
        """Seconds that jobs have held workers so far, start-up included."""
        return self._spent + sum(self.now - job.started for job in self._running)

    @property
    def begun(self) -> list[Job]:
        """The jobs that have had time to do something."""
        return [job for job in self.jobs if job.started < self.now]

    @property
    def steps(self) -> int:
        """Steps trained so far, over all jobs."""
        return sum(job.step(self.now) - job.start_step for job in self.begun)

    def configurations(self) -> set[str]:
        """Those that have reached the lowest rung or were stopped by a rule."""
        lowest = self.problem.rungs[0]
        ruled = [job for job in self.begun if job.end <= self.now and job.cause and job.cause.stopped]
        reached = [job for job in self.begun if job.step(self.now) >= lowest]
        return {job.training.config_id for job in [*reached, *ruled]}

    def remaining(self, config: Config) -> float:
        """Seconds of the job that brings ``config`` to the full budget on the target; 0 where that has been done."""
        target, full = self.problem.models[-1].name, self.problem.rungs[-1]
        training = Training(config_id(config), target)
        if self.saved(training) >= full:
            return 0.0
        curve, startup = self.curve(training, config), self.problem.startup_seconds(target)
        job = Job(0, training, config, full, (), 0.0, curve, startup)
        job.start(0.0, self.saved(training))
        return job.end

    def jump(self, budget: float = math.inf) -> bool:
        """Move to the next change or look; False where ``budget`` seconds of cost are spent before, or at once there.

        :raises RuntimeError: nothing is queued or running: time would stand still for ever.
        """
        coming = [min(job.end, job.next_look(self.now)) for job in self._running]
        if self._queue and len(self._running) < self.site.workers:
            coming.append(self._queue[0].submitted + self.site.latency)
        if not coming:
            raise RuntimeError("nothing is running and nothing was submitted")
        then, left = min(coming), budget - self.cost
        if left <= (then - self.now) * len(self._running):
            self.now += max(0.0, left) / max(1, len(self._running))
            return False
        self.now = then
        self._change()
        return True

    def _change(self) -> None:
        for job in [job for job in self._running if job.end <= self.now]:
            self._running.remove(job)
            self._spent += job.end - job.started
            self._save(job)
        self._start()

    def _save(self, job: Job) -> None:
        every = self.site.save_every
        if every is not None:
            whole = job.cause is Cause.COMPLETED
            step = job.goal if whole else job.step(job.end) // every * every
            self._saved[job.training] = max(step, self.saved(job.training))

    def _start(self) -> None:
        while self._queue and len(self._running) < self.site.workers:
            job = self._queue[0]
            if job.submitted + self.site.latency > self.now:
                return
            self._running.append(self._queue.popleft())
            step = self.saved(job.training)
            # a checkpoint past its end is no help to a job: from the base weights then
            job.start(self.now, step if step <= job.goal else 0)
            chance, share = np.random.default_rng([self.seed, job.number]).random(2)
            if chance < self.site.failures:
                job.cut(job.started + share * (job.end - job.started), Cause.NODE_FAILURE)


def _durations(curve: Curve, last: int) -> Array:
    """Seconds of each step up to ``last``; one that the curve does not define takes as long as the others."""
    seconds = np.diff(curve.seconds[:last], prepend=0.0)
    known = seconds[np.isfinite(seconds)]
    return np.where(np.isfinite(seconds), seconds, known.mean() if len(known) else 0.0)
