"""Grid search: the full factorial of the space on the target at full budget, in an order that spreads every prefix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.conditions import count
from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import SearchProblem
from hpcjf.core.searchers.sampling import Candidate, SamplingSearch
from hpcjf.study import Categorical, Dimension, IntegerRange
from hpcjf.types import Config, Fidelity, Observation, Scalar

POINTS = 100
"""Least points of the grid where ``max_trials`` sets no number."""
_LISTED, _PLACED = 10_000, 512
"""Most points of a grid (of a larger one so many are drawn), and how many of them are ordered with care."""


class GridSearcher(SamplingSearch):
    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self.levels = levels(problem.space.dimensions, problem.max_trials or POINTS)
        self._order = spread([len(values) for values in self.levels.values()], problem.seed)
        self._done = 0

    def tell(self, observation: Observation) -> None:
        super().tell(observation)
        while self._done < len(self._order) and not self._untouched(self._point(self._done)):
            self._done += 1

    def candidates(self, number: int) -> Iterator[Candidate]:
        points = ((k, self._point(k)) for k in range(self._done, len(self._order)))
        size = len(self._order)
        return ((config, {"reason": "grid", "point": k, "points": size}) for k, config in points if config)

    def _untouched(self, config: Config | None) -> bool:
        return config is not None and self.history.open(config_id(config), Fidelity(self.problem.target, 1))

    def _point(self, k: int) -> Config | None:
        """Point ``k`` of the order, None where it breaks a constraint."""
        pairs = zip(self.levels.items(), self._order[k], strict=True)
        values = {name: options[digit] for (name, options), digit in pairs}
        config = self.problem.space.canonical(self.problem.complete(values))
        return config if self.problem.space.contains(config) else None


def spread(counts: Sequence[int], seed: int) -> NDArray[np.int64]:
    """The points of a factorial, ``[n, d]`` level numbers, such that every prefix is spread over all of it.

    Each is the least like those before it, summed over them; the likeness of two points is the product of the
    ``counts`` of those dimensions in which they agree. Ties are broken at random, and the points after 512 come so.
    """
    rng = np.random.default_rng(seed)
    if math.prod(counts) <= _LISTED:
        points = np.indices(counts).reshape(len(counts), -1).T
    else:
        points = np.unique((rng.random((_LISTED, len(counts))) * counts).astype(np.int64), axis=0)
    points = rng.permutation(points)
    likeness, order = np.zeros(len(points)), list[int]()
    for _ in range(min(_PLACED, len(points))):
        order.append(int(np.argmin(likeness)))
        likeness += np.where(points == points[order[-1]], counts, 1.0).prod(axis=1)
        likeness[order[-1]] = np.inf
    return np.vstack([points[order], np.delete(points, order, axis=0)])


def levels(dimensions: Mapping[str, Dimension], points: int) -> dict[str, Sequence[Scalar]]:
    """Values of each dimension: all categories, and at least two of a number, as evenly many as ``points`` needs."""
    counts = dict.fromkeys(dimensions, 2)
    grid = {name: _values(dimension, 2) for name, dimension in dimensions.items()}
    while math.prod(len(values) for values in grid.values()) < points:
        growing = [name for name, dimension in dimensions.items() if len(grid[name]) < count(dimension)]
        if not growing:
            break
        name = min(growing, key=lambda name: len(grid[name]))
        counts[name] += 1
        grid[name] = _values(dimensions[name], counts[name])
    return grid


def _values(dimension: Dimension, n: int) -> Sequence[Scalar]:
    """``n`` values from end to end, evenly in the (log) range; fewer of an integer that has not so many."""
    if isinstance(dimension, Categorical):
        return dimension.choices
    low, high = dimension.low, dimension.high
    shares = [k / (n - 1) for k in range(n)]
    spaced = [low * (high / low) ** share if dimension.log else low + (high - low) * share for share in shares]
    inside = [min(max(value, low), high) for value in spaced]
    return sorted({round(value) for value in inside}) if isinstance(dimension, IntegerRange) else inside
