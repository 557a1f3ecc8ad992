"""The space as points: numbers in [0, 1], log-scaled where asked, and categories as their index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from hpcjf.core.conditions import same
from hpcjf.core.searchers.base import SearchProblem
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config, Scalar

Array = NDArray[np.float64]


class Cube:
    """``choices`` counts the categories of each dimension, 0 for a number.

    Each integer has an interval of its own, so that a uniform point is a uniform integer.
    """

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem
        self._dimensions = problem.space.dimensions
        self.choices = [len(d.choices) if isinstance(d, Categorical) else 0 for d in self._dimensions.values()]

    def encode(self, configs: Sequence[Config]) -> Array:
        """``[n, d]``; NaN where a dimension is inactive or has a value that is none of its categories."""
        rows = [[_position(d, c.get(name)) for name, d in self._dimensions.items()] for c in configs]
        return np.array(rows, dtype=np.float64).reshape(len(configs), len(self._dimensions))

    def decode(self, point: Sequence[float]) -> Config | None:
        """The configuration at ``point``, None where it breaks a constraint."""
        pairs = zip(self._dimensions.items(), point, strict=True)
        values = {name: _value(dimension, position) for (name, dimension), position in pairs}
        config = self._problem.space.canonical(self._problem.complete(values))
        return config if self._problem.space.contains(config) else None


def truncated_normal(rng: np.random.Generator, mean: Array, width: Array) -> Array:
    """One draw on [0, 1] around each mean, all in [0, 1]."""
    low, high = ndtr(-mean / width), ndtr((1 - mean) / width)
    drawn = mean + width * ndtri(low + (high - low) * rng.random(mean.shape))
    return np.asarray(np.clip(drawn, 0.0, 1.0))


def _bounds(dimension: RealRange | IntegerRange) -> tuple[float, float]:
    margin = 0.5 if isinstance(dimension, IntegerRange) else 0.0
    low, high = dimension.low - margin, dimension.high + margin
    return (math.log(low), math.log(high)) if dimension.log else (low, high)


def _position(dimension: Dimension, value: Scalar | None) -> float:
    if value is None:
        return math.nan
    if isinstance(dimension, Categorical):
        return next((i for i, choice in enumerate(dimension.choices) if same(choice, value)), math.nan)
    low, high = _bounds(dimension)
    inside = min(max(float(value), dimension.low), dimension.high)
    return ((math.log(inside) if dimension.log else inside) - low) / (high - low)


def _value(dimension: Dimension, position: float) -> Scalar:
    if isinstance(dimension, Categorical):
        return dimension.choices[int(position)]
    low, high = _bounds(dimension)
    value = low + position * (high - low)
    value = min(max(math.exp(value) if dimension.log else value, dimension.low), dimension.high)
    return round(value) if isinstance(dimension, IntegerRange) else value
