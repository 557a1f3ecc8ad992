"""Syne Tune: ASHA and its BOHB, which stop jobs at the rungs, and CQR, which knows the full budget alone.

Version 0.16 has no promotion of paused trials any more. Its kernel density estimator sees a logarithmic dimension
linearly, and may leave an integer one at its lower end; what it proposes is clipped, and it learns of that.
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

import numpy as np
from protocol import Config, Dimension, Job, Peer, Start, serve
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer.baselines import ASHA, BOHB, CQR
from syne_tune.optimizer.scheduler import SchedulerDecision, TrialScheduler

METRIC, RESOURCE = "score", "resource"


class Cqr(Peer):
    def __init__(self, start: Start) -> None:
        self.start = start
        np.random.seed(start.seed)  # the library draws from it beside its own seed
        self.count = 0
        self.scheduler = self.make(
            config_space={name: _domain(dimension) for name, dimension in start.space.items()},
            metric=METRIC,
            do_minimize=False,
            random_seed=start.seed,
            points_to_evaluate=[start.recipe],
        )

    def make(self, **options: Any) -> TrialScheduler:
        return CQR(**options)

    def ask(self) -> Job | None:
        suggestion = self.scheduler.suggest()
        if suggestion is None:
            return None
        config = self._inside(suggestion.config)
        trial = Trial(trial_id=self.count, config=config, creation_time=datetime.datetime.fromtimestamp(0))
        self.count += 1
        self.scheduler.on_trial_add(trial)
        return Job(trial, config, self.start.full)

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        if score is None:
            self.scheduler.on_trial_error(job.handle)
        elif steps < job.steps:
            self.scheduler.on_trial_remove(job.handle)
        else:
            self.scheduler.on_trial_complete(job.handle, self.result(steps, score))

    def result(self, steps: int, score: float) -> dict[str, float]:
        return {METRIC: score, RESOURCE: self.start.resource(steps)}

    def _inside(self, config: Config) -> Config:
        return {name: dimension.encode(dimension.decode(config[name])) for name, dimension in self.start.space.items()}


class Asha(Cqr):
    reports = True
    kind = ASHA

    def make(self, **options: Any) -> TrialScheduler:
        top = self.start.resource(self.start.full)
        return self.kind(**options, time_attr=RESOURCE, max_t=top, reduction_factor=self.start.eta)

    def report(self, job: Job, steps: int, score: float) -> bool:
        decision = self.scheduler.on_trial_result(job.handle, self.result(steps, score))
        return bool(decision == SchedulerDecision.STOP)


class Bohb(Asha):
    kind = BOHB


def _domain(dimension: Dimension) -> Any:
    if dimension.choices:
        return choice(list(dimension.keys))
    low, high = dimension.low, dimension.high
    if dimension.type == "integer":
        return lograndint(int(low), int(high)) if dimension.log else randint(int(low), int(high))
    return loguniform(low, high) if dimension.log else uniform(low, high)


if __name__ == "__main__":
    logging.getLogger("syne_tune").setLevel(logging.ERROR)
    serve("syne-tune", {"asha": Asha, "bohb": Bohb, "cqr": Cqr})
