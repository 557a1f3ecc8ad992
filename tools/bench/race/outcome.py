"""What a search was worth: what it would have returned at every cost, and what that is compared with.

A recommendation counts from the cost at which the target has been trained with it: seconds spent when it was made, and
those of the training that then was still to be done. So a method that searches on a proxy pays for its last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hpcjf.core.identity import config_id
from hpcjf.types import Config
from race.pool import Pool, Training
from race.problem import Array

RESAMPLES, LEVEL = 4000, 0.95
TIE = 0.01
"""Share of the score's span within which two methods may be level."""


@dataclass(frozen=True, slots=True)
class Point:
    """A recommendation: made at ``cost``, trained at ``delivered`` (seconds over all workers), worth ``truth``."""

    cost: float
    delivered: float
    truth: float
    config: Config


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished run. The first point is the recipe, which needs no search. ``size_ratio``: target over proxy.

    ``cost``: everything up to the end, the last recommendation's training included. ``configurations``: distinct ones
    that reached the lowest rung or were stopped by a rule. CPU seconds (of the controller, of its asks) are apart.
    """

    problem: str
    method: str
    seed: int
    budget: float
    dynamics: bool
    size_ratio: float
    span: tuple[float, float]
    points: tuple[Point, ...]
    cost: float
    configurations: int
    jobs: int
    steps: int
    asks: int = field(default=0, compare=False)
    ask_cpu: float = field(default=0.0, compare=False)
    controller_cpu: float = field(default=0.0, compare=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Outcome:
        points = tuple(Point(**point) for point in raw["points"])
        return cls(**{**raw, "points": points, "span": tuple(raw["span"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def truth_at(self, cost: float) -> float:
        """Worth of what is trained by then: the newest recommendation whose training is paid for, else the recipe."""
        return next((p.truth for p in reversed(self.points) if p.delivered <= cost), self.points[0].truth)

    def regret_at(self, cost: float) -> float:
        """Distance to the best in shares of the span."""
        worst, best = self.span
        return (best - self.truth_at(cost)) / (best - worst)

    @property
    def full(self) -> float:
        """Seconds of one full training of the target with the recipe."""
        return self.points[0].delivered

    @property
    def regret(self) -> float:
        """At the whole budget."""
        return self.regret_at(self.budget)

    def cost_to_reach(self, truth: float) -> float:
        """The least cost, within the budget, at which something as good as ``truth`` is trained; infinite if never."""
        costs = sorted(p.delivered for p in self.points if p.delivered <= self.budget)
        return next((cost for cost in costs if self.truth_at(cost) >= truth), np.inf)

    @property
    def regret_area(self) -> float:
        """Mean regret over log cost, from one full training of the recipe to the budget."""
        inner = sorted(p.delivered for p in self.points if self.full < p.delivered < self.budget)
        edges = [self.full, *inner, self.budget]
        parts = (self.regret_at(a) * np.log(b / a) for a, b in pairwise(edges))
        return float(sum(parts) / np.log(self.budget / self.full))

    @property
    def time_per_trial(self) -> float:
        """All cost over distinct configurations."""
        return self.cost / max(1, self.configurations)


class Recorder:
    """Notes what a method would return while it searches."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._last: Sequence[Config] = ()
        self.points: list[Point] = []
        self.recommend([pool.problem.recipe])

    def recommend(self, configs: Sequence[Config]) -> None:
        """From now on these would be trained on the target, and the one of the best score there returned."""
        if [*map(config_id, configs)] != [*map(config_id, self._last)]:
            self._last, problem = configs, self.pool.problem
            best = max(configs, key=self._score) if len(configs) > 1 else configs[0]
            cost = self.pool.cost
            self.points.append(Point(cost, cost + self._training(), problem.truth(best), dict(best)))

    def outcome(self, method: str, budget: float, **figures: Any) -> Outcome:
        """``figures``: the fields on CPU time."""
        pool, problem = self.pool, self.pool.problem
        return Outcome(
            problem=problem.name,
            method=method,
            seed=pool.seed,
            budget=budget,
            dynamics=problem.dynamics,
            size_ratio=problem.models[-1].parameters / problem.models[0].parameters,
            span=problem.span,
            points=tuple(self.points),
            cost=pool.cost + self._training(),
            configurations=len(pool.configurations()),
            jobs=len(pool.begun),
            steps=pool.steps,
            **figures,
        )

    def _training(self) -> float:
        return sum(self.pool.remaining(config) for config in self._last)

    def _score(self, config: Config) -> float:
        target = self.pool.problem.models[-1].name
        score = self.pool.curve(Training(config_id(config), target), config).score_at(self.pool.problem.rungs[-1])
        return -np.inf if score is None else score


class Interval(NamedTuple):
    """A mean and its bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


def interval(values: Sequence[float] | Array) -> Interval:
    """Of the mean, by resampling the values: percentiles at ``LEVEL``."""
    data = np.asarray(values, dtype=np.float64)
    drawn = data[np.random.default_rng(0).integers(len(data), size=(RESAMPLES, len(data)))].mean(axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(data.mean()), float(low), float(high))


def verdict(advantage: Interval) -> Literal["win", "tie", "loss"]:
    """Of an advantage over seeds, in shares of the span. Level: within ``TIE`` of 0, with 0 in the interval."""
    if abs(advantage.mean) <= TIE and advantage.low <= 0 <= advantage.high:
        return "tie"
    return "win" if advantage.mean > 0 else "loss"


def ranks(regrets: Array) -> Array:
    """``[races, methods]`` regrets to ranks, 1 for the least; equal ones share the mean of their ranks."""
    return np.asarray(rankdata(regrets, axis=1))
