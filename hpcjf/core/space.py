"""The search space: ``hpcjf.study`` dimensions on ``skopt.space``, with plain Python values outside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skopt.sampler import Lhs
from skopt.space import Categorical as SkCategorical
from skopt.space import Integer, Real

from hpcjf.core.identity import config_id, plain
from hpcjf.errors import StudyError
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config, Scalar

Array = NDArray[np.float64]


class _Axis:
    """One dimension; numbers live in [0, 1] (log-scaled where asked), categories are one-hot.

    skopt turns mixed choices into strings, so that categories enter it as their index.
    """

    def __init__(self, dimension: Dimension) -> None:
        self.dimension = dimension
        self.skopt = _to_skopt(dimension)

    @property
    def width(self) -> int:
        """Columns in the encoding: two categories share one."""
        choices = len(self.dimension.choices) if isinstance(self.dimension, Categorical) else 1
        return choices if choices > 2 else 1

    def plain(self, value: Any) -> Scalar:
        """``value`` in this dimension's Python type; values outside the range are kept."""
        match self.dimension:
            case RealRange(low=low, high=high):
                number = _number(value)
                rounded = float(plain(number))
                # rounding alone must not push a bound out of its own range
                return rounded if not low <= number <= high else min(max(rounded, low), high)
            case IntegerRange():
                return round(_number(value))
            case Categorical():
                return plain(value)

    def decode(self, value: Any) -> Scalar:
        """The plain value of what skopt sampled."""
        if isinstance(self.dimension, Categorical):
            return plain(self.dimension.choices[int(value)])
        return self.plain(value)

    def contains(self, value: Scalar) -> bool:
        if isinstance(self.dimension, Categorical):
            return self._index(value) is not None
        return not isinstance(value, str) and self.dimension.low <= value <= self.dimension.high

    def encode(self, values: Sequence[Scalar]) -> Array:
        """``[n, width]``; a number outside the range goes to the nearest bound, a foreign category to zeros."""
        if not values:
            return np.zeros((0, self.width))
        if isinstance(self.dimension, Categorical):
            indices = [self._index(value) for value in values]
            known = np.array([[index is not None] for index in indices], dtype=np.float64)
            return known * np.asarray(self.skopt.transform([index or 0 for index in indices]), dtype=np.float64)
        low, high = self.dimension.low, self.dimension.high
        inside = [min(max(float(value), low), high) for value in values]
        return np.asarray(self.skopt.transform(inside), dtype=np.float64).reshape(-1, 1).clip(0.0, 1.0)

    def perturb(self, value: Scalar, rng: np.random.Generator, scale: float) -> Scalar:
        """A Gaussian step of width ``scale`` in [0, 1], reflected at the bounds; a category is redrawn as rarely."""
        if isinstance(self.dimension, Categorical):
            redraw = rng.random() < scale
            drawn = int(rng.integers(len(self.dimension.choices)))
            return self.decode(drawn) if redraw else value
        moved = abs(float(self.encode([value])[0, 0]) + scale * rng.standard_normal())
        moved = min(max(1.0 - abs(1.0 - moved), 0.0), 1.0)
        return self.decode(self.skopt.inverse_transform(np.array([moved]))[0])

    def _index(self, value: Scalar) -> int | None:
        assert isinstance(self.dimension, Categorical)
        kind = isinstance(value, bool)  # True == 1 in Python, not in a study file
        same = (i for i, c in enumerate(self.dimension.choices) if c == value and isinstance(c, bool) is kind)
        return next(same, None)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{value!r} is no number", fix="give a number for a real or integer dimension") from error


def _to_skopt(dimension: Dimension) -> Any:
    if isinstance(dimension, Categorical):
        return SkCategorical(list(range(len(dimension.choices))), transform="onehot")
    prior = "log-uniform" if dimension.log else "uniform"
    kind = Real if isinstance(dimension, RealRange) else Integer
    return kind(dimension.low, dimension.high, prior=prior, transform="normalize")


class Space:
    """Named dimensions in a fixed order. A configuration may carry more names than the space: they pass unchanged."""

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self._axes = {name: _Axis(dimension) for name, dimension in dimensions.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._axes)

    @property
    def size(self) -> float:
        """Number of distinct configurations; infinite where a dimension is real."""
        return math.prod(_count(axis.dimension) for axis in self._axes.values())

    def canonical(self, config: Config) -> Config:
        """``config`` in plain Python scalars, each in its dimension's type, floats at 12 significant digits."""
        return {n: self._axes[n].plain(v) if n in self._axes else plain(v) for n, v in config.items()}

    def contains(self, config: Config) -> bool:
        """Whether every dimension has a value of ``config`` inside its range."""
        return all(name in config and axis.contains(config[name]) for name, axis in self._axes.items())

    def sample(self, n: int, rng: np.random.Generator) -> list[Config]:
        """``n`` independent draws from the priors (log-uniform where asked)."""
        state = np.random.RandomState(int(rng.integers(2**32)))
        columns = [axis.skopt.rvs(n, random_state=state) for axis in self._axes.values()]
        return self._decode(list(zip(*columns, strict=True)) if columns else [()] * n)

    def space_filling(self, n: int, seed: int) -> list[Config]:
        """A maximin Latin hypercube of ``n`` points, without repeats (fewer where the space has no more)."""
        if n < 1:
            return []
        sampler = Lhs(criterion="maximin", iterations=100)
        design = sampler.generate([axis.skopt for axis in self._axes.values()], n, random_state=seed)
        # categories and integers collapse points of the hypercube: fill up at random
        spare = self.sample(20 * n, np.random.default_rng(seed))
        return list({config_id(c): c for c in [*self._decode(design), *spare]}.values())[:n]

    def perturb(self, config: Config, rng: np.random.Generator, scale: float) -> Config:
        """A neighbour of ``config``: each number moves by about ``scale`` of its (log) range."""
        return {n: self._axes[n].perturb(v, rng, scale) if n in self._axes else v for n, v in config.items()}

    def encode(self, configs: Sequence[Config]) -> Array:
        """``[n, d]`` in [0, 1]; two categories take one column, more take one each."""
        columns = [axis.encode([config[name] for config in configs]) for name, axis in self._axes.items()]
        return np.hstack([np.zeros((len(configs), 0)), *columns])

    def _decode(self, rows: Sequence[Sequence[Any]]) -> list[Config]:
        axes = self._axes.items()
        return [{n: axis.decode(v) for (n, axis), v in zip(axes, row, strict=True)} for row in rows]


def _count(dimension: Dimension) -> float:
    match dimension:
        case RealRange():
            return math.inf
        case IntegerRange(low=low, high=high):
            return high - low + 1
        case Categorical(choices=choices):
            return len(choices)
