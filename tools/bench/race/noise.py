"""What the noise of a training run lets any method know: N full runs of the target where the truly best quarter lies.

No method is given that quarter. The figures are what one choice among single runs reaches, not a bound: a method that
returns to the neighbourhood of the best may do better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hpcjf.controller.endings import late_score
from hpcjf.core.identity import config_id
from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.base import SearchProblem
from hpcjf.core.space import Space
from hpcjf.types import Cause, Config, Fidelity, Observation
from race.cases import problem_of
from race.problem import Problem
from race.simulation import rows_of

TARGETS = ("arithmetic s>m", "arithmetic s>l", "subtraction s>m")
RUNS = (10, 20, 40)
SEEDS = 20
_DRAWN = 400


class Choice(NamedTuple):
    """Mean regret over seeds, in shares of the span, of what is chosen among ``runs`` full runs of the best quarter."""

    target: str
    runs: int
    by_score: float
    by_surrogate: float
    best: float


def measure(seeds: int = SEEDS, targets: Sequence[str] = TARGETS) -> Iterator[Choice]:
    for name in targets:
        problem = problem_of(name)
        regrets = np.mean([_choices(problem, seed) for seed in range(seeds)], axis=0)
        for runs, means in zip(RUNS, regrets, strict=True):
            yield Choice(name, runs, *means)


def _choices(problem: Problem, seed: int) -> list[list[float]]:
    """For each of ``RUNS`` the regrets of highest late score, highest mean of our surrogate, and truly best."""
    space, target = Space(problem.space), problem.models[-1]
    drawn = space.sample(_DRAWN, np.random.default_rng([seed, 1]))
    truths = np.array([problem.truth(config) for config in drawn])
    best_quarter = np.flatnonzero(truths >= np.quantile(truths, 0.75))[: max(RUNS)]
    told = [_full_run(problem, drawn[place], number, seed) for number, place in enumerate(best_quarter)]
    low, high = problem.span
    found = []
    for runs in RUNS:
        searcher = make_searcher("jfhpo", SearchProblem(space, (target,), problem.rungs, problem.recipe, seed=seed))
        for observation in told[:runs]:
            searcher.tell(observation)
        by_score = max(told[:runs], key=lambda o: o.late_score or 0.0).config
        chosen = [problem.truth(by_score), problem.truth(searcher.best()), float(truths[best_quarter[:runs]].max())]
        found.append([(high - truth) / (high - low) for truth in chosen])
    return found


def _full_run(problem: Problem, config: Config, number: int, seed: int) -> Observation:
    full = Fidelity(problem.models[-1].name, problem.rungs[-1])
    curve = problem.curve(config, full.model, seed)
    return Observation(
        number,
        config_id(config),
        config,
        full,
        curve.score_at(full.steps),
        Cause.COMPLETED,
        0,
        float(curve.seconds[-1]),
        problem.startup_seconds(full.model),
        late_score=late_score(rows_of(curve, full.steps), full.steps),
    )
