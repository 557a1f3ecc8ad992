"""Jobs on a bench's site that train by a formula, at a pace and with accidents that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.site import Bench

from hpcjf.cluster.base import JobClass
from hpcjf.controller.ask import Asker
from hpcjf.core.lifecycle import Attempt, Phase
from hpcjf.store.journal import read_journal
from hpcjf.store.messages import AttemptResult, AttemptSpec, StopOrder
from hpcjf.store.traces import TraceWriter
from hpcjf.types import Cause

SAVE_EVERY = 5
SECTIONS: dict[str, Any] = {
    "models": [{"name": "s", "path": "s", "parameters": 1000}, {"name": "m", "path": "m", "parameters": 8000}],
    "recipe": {"learning_rate": 1e-4, "rollouts": 5},
    "space": {
        "learning_rate": {"type": "real", "low": 1e-6, "high": 1e-2, "log": True},
        "rollouts": {"type": "integer", "low": 2, "high": 16},
    },
    "budget": {"min": 10, "max": 30},
    "stopping": {"rule": "paper"},
    "checkpoints": {"save_every": SAVE_EVERY},
}


class Farm:
    """Drives one study. Every turn is a tick, after which jobs get on by as much as ``seed`` says."""

    def __init__(self, root: Path, seed: int, slots: int | None = None, **search: Any) -> None:
        self.bench = Bench(root, slots, **SECTIONS, search=search)
        self._rng, self._restarts = random.Random(seed), random.Random(seed)
        self._jobs: dict[str, _Job] = {}
        self._saved: dict[tuple[str, str], int] = {}
        self._new_asker()

    def _new_asker(self) -> None:
        asker, bench = Asker(self.bench.study), self.bench
        self.bench.ask = lambda count: asker.answer(bench.controller.state, count)

    def live(self, restarts: float = 0.0) -> None:
        """To the end of the search. ``restarts``: chance in a turn that the controller dies with kill -9."""
        for _ in range(2000):
            self.bench.tick(self._rng.uniform(1, 200))
            if self.bench.controller.state.phase is not Phase.SEARCH:
                return
            if self._restarts.random() < restarts:
                self.bench.restart()
                self._new_asker()
            for attempt in self.bench.live():
                if attempt.job_id and self._rng.random() < 0.5:
                    self._work(attempt)
        raise AssertionError("the study comes to no end")

    def trials(self) -> list[Mapping[str, Any]]:
        """Their events without times."""
        events = (dict(event) for event in read_journal(self.bench.layout.journal)[0] if event["kind"] == "trial")
        return [{key: value for key, value in event.items() if key != "time"} for event in events]

    def _work(self, attempt: Attempt) -> None:
        assert attempt.job_id
        job = self._jobs.get(attempt.name)
        if job is None:
            spec = AttemptSpec.read(self.bench.paths(attempt).spec)
            start = self._saved.get((spec.config_id, spec.model), 0)
            writer = TraceWriter(self.bench.paths(attempt).trace, fsync_seconds=1e9)
            job = self._jobs[attempt.name] = _Job(spec, start if start <= spec.steps else 0, writer)
        if job.ended:
            return
        order = StopOrder.read(path) if (path := self.bench.paths(attempt).stop).exists() else None
        cause = None if order is None else order.cause
        for _ in range(0 if cause else self._rng.randint(1, job.spec.steps)):
            cause = job.step_on()
            if job.step % SAVE_EVERY == 0:
                self._saved[job.spec.config_id, job.spec.model] = job.step
            if cause:
                break
        if cause is None and self._rng.random() < 0.1:
            job.writer.close()
            self._jobs[attempt.name].ended = True
            self.bench.site.become(attempt.job_id, JobClass.INFRASTRUCTURE, "NODE_FAIL")
        elif cause:
            job.end(cause, self.bench.paths(attempt).result, self._rng.uniform(1, 1e4))
            self.bench.site.become(attempt.job_id, JobClass.FINISHED, "COMPLETED")


class _Job:
    def __init__(self, spec: AttemptSpec, start: int, writer: TraceWriter) -> None:
        self.spec, self.writer, self.start, self.step = spec, writer, start, start
        self.score: float | None = None
        self.ended = False

    def step_on(self) -> Cause | None:
        if self.step >= self.spec.steps:
            return Cause.COMPLETED
        self.step += 1
        luck = int(self.spec.config_id, 16)
        height = luck % 97 / 97 + (0.1 if self.spec.model == "m" else 0.0)
        evaluated = self.step % 10 == 0 or self.step == self.spec.steps
        self.score = height * (1 - 0.5 ** (self.step / 10)) if evaluated else self.score
        collapsed = luck % 2 == 0 and self.step > 1 + luck % 9
        diverged = luck % 7 == 0 and self.step > 12
        self.writer.append(
            step=self.step,
            kl=float("nan") if diverged else 0.01 * (1 + luck % 5),
            reward_mean=0.0 if collapsed else 0.5,
            eval_score=self.score if evaluated else None,
            tokens=50 + luck % 100 + self.step,
        )
        if diverged:
            return Cause.DIVERGED
        return Cause.COMPLETED if self.step == self.spec.steps else None

    def end(self, cause: Cause, path: Path, seconds: float) -> None:
        self.ended = True
        self.writer.close()
        AttemptResult(
            name=self.spec.name, cause=cause, step=self.step, start_step=self.start,
            score=0.123 if cause.stopped else self.score, seconds=seconds, startup_seconds=seconds / 10,
            cpu_seconds=seconds, peak_mb=1.0,
        ).write(path)  # fmt: skip
