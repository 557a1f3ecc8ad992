"""Optuna: TPE alone on the full budget, and TPE with the Hyperband pruner. Both samplers are as the library makes them.

A failed trial is told as failed, which the sampler ignores.
"""

from __future__ import annotations

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import HyperbandPruner, NopPruner
from optuna.trial import TrialState
from protocol import Dimension, Job, Peer, Start, serve


class Tpe(Peer):
    def __init__(self, start: Start) -> None:
        self.start = start
        self.space = {name: _distribution(dimension) for name, dimension in start.space.items()}
        self.study = optuna.create_study(
            study_name=f"race-{start.seed}",  # from which the pruner draws the brackets
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=start.seed),
            pruner=self.pruner(),
        )
        self.study.enqueue_trial(start.recipe)

    def pruner(self) -> optuna.pruners.BasePruner:
        return NopPruner()

    def ask(self) -> Job:
        trial = self.study.ask(self.space)
        return Job(trial, trial.params, self.start.full)

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        if score is None:
            self.study.tell(job.handle, state=TrialState.FAIL)
        elif steps < job.steps:
            self.study.tell(job.handle, state=TrialState.PRUNED)
        else:
            self.study.tell(job.handle, score)


class TpeHyperband(Tpe):
    """Jobs run to the full budget unless they are pruned at a rung, which counts as eta to the power of its index."""

    reports = True

    def pruner(self) -> optuna.pruners.BasePruner:
        # one above the last rung, lest the count of brackets suffer from a rounded logarithm
        top = self.start.resource(self.start.full) + 1
        return HyperbandPruner(min_resource=1, max_resource=top, reduction_factor=self.start.eta)

    def report(self, job: Job, steps: int, score: float) -> bool:
        job.handle.report(score, self.start.resource(steps))
        return bool(job.handle.should_prune())


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.keys)
    if dimension.type == "integer":
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    serve("optuna", {"tpe": Tpe, "tpe-hyperband": TpeHyperband})
