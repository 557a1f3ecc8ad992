"""What the noise of a training run lets any method know: N full runs of the target where the truly best quarter lies.

No method is given that quarter. The figures are what one choice among single runs reaches, not a bound: a method that
returns to the neighbourhood of the best may do better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.base import SearchProblem
from hpcjf.core.space import Space
from hpcjf.types import Cause, Fidelity, Observation
from race.cases import problem_of
from race.problem import Array, Problem

TARGETS = ("arithmetic s>m", "arithmetic s>l", "subtraction s>m")
RUNS = (10, 20, 40)
SEEDS = 20
_DRAWN = 400
_LATE = 0.7


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
        for runs in RUNS:
            yield Choice(name, runs, *np.mean([_choose(problem, runs, seed) for seed in range(seeds)], axis=0))


def _choose(problem: Problem, runs: int, seed: int) -> tuple[float, float, float]:
    """Regrets of the highest late score, of our surrogate's highest mean, and of the truly best."""
    space, target = Space(problem.space), problem.models[-1]
    drawn = space.sample(_DRAWN, np.random.default_rng([seed, 1]))
    truths = np.array([problem.truth(config) for config in drawn])
    picked = np.flatnonzero(truths >= np.quantile(truths, 0.75))[:runs]
    search = SearchProblem(space, (target,), problem.rungs, problem.recipe, seed=seed)
    searcher = make_searcher("jfhpo", search)
    scores = []
    for number, place in enumerate(picked):
        curve, full = problem.curve(drawn[place], target.name, seed), Fidelity(target.name, problem.rungs[-1])
        late = _late(curve.score)
        scores.append(late)
        searcher.tell(
            Observation(
                number,
                config_id(drawn[place]),
                drawn[place],
                full,
                curve.score_at(full.steps),
                Cause.COMPLETED,
                0,
                float(curve.seconds[-1]),
                problem.startup_seconds(target.name),
                late_score=late,
            )
        )
    low, high = problem.span
    chosen = (drawn[picked[int(np.argmax(scores))]], searcher.best(), drawn[picked[int(np.argmax(truths[picked]))]])
    by_score, by_surrogate, best = ((high - problem.truth(config)) / (high - low) for config in chosen)
    return by_score, by_surrogate, best


def _late(score: Array) -> float:
    late = score[int(_LATE * len(score)) :]
    return float(np.mean(late[np.isfinite(late)]))
