"""The search space: ``hpcjf.study`` dimensions on ``skopt.space``, with plain Python values outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skopt.sampler import Lhs
from skopt.space import Categorical as SkCategorical
from skopt.space import Integer, Real

from hpcjf.core.conditions import Conditions, same
from hpcjf.core.constraints import Constraint
from hpcjf.core.identity import config_id, plain
from hpcjf.errors import StudyError
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config, Scalar

Array = NDArray[np.float64]

_DRAWS, _STEPS = 10_000, 20
"""Tries of a configuration, and of a step from one, that break the constraints before they count as impossible."""
_BATCH = 500
"""Draws at once where the first ones were not enough."""


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

    def encode(self, values: Sequence[Scalar | None]) -> Array:
        """``[n, width]``; a number outside the range goes to the nearest bound, a foreign category to zeros.

        None, an inactive dimension, is the middle of the range (no value is further off than half of it), or none of
        more than two categories: zeros.
        """
        known = [value for value in values if value is not None]
        encoded = np.full((len(values), self.width), 0.5 if self.width == 1 else 0.0)
        if known:
            encoded[[value is not None for value in values]] = self._encode(known)
        return encoded

    def _encode(self, values: Sequence[Scalar]) -> Array:
        if isinstance(self.dimension, Categorical):
            indices = [self._index(value) for value in values]
            known = np.array([[index is not None] for index in indices], dtype=np.float64)
            # as skopt's "onehot", whose binarizer took a fifth of a search's time
            columns = np.arange(1, 2) if self.width == 1 else np.arange(self.width)
            return known * np.equal.outer([index or 0 for index in indices], columns)
        low, high = self.dimension.low, self.dimension.high
        inside = [min(max(float(value), low), high) for value in values]
        return np.asarray(self.skopt.transform(inside), dtype=np.float64).reshape(-1, 1).clip(0.0, 1.0)

    def perturb(self, value: Scalar, place: float, rng: np.random.Generator, scale: float) -> Scalar:
        """A Gaussian step of width ``scale`` from ``place`` in [0, 1], where a number's value lies, reflected at the
        bounds; a category is redrawn as rarely.
        """
        if isinstance(self.dimension, Categorical):
            redraw = rng.random() < scale
            drawn = int(rng.integers(len(self.dimension.choices)))
            return self.decode(drawn) if redraw else value
        moved = abs(place + scale * rng.standard_normal())
        moved = min(max(1.0 - abs(1.0 - moved), 0.0), 1.0)
        return self.decode(self.skopt.inverse_transform(np.array([moved]))[0])

    def _index(self, value: Scalar) -> int | None:
        assert isinstance(self.dimension, Categorical)
        return next((i for i, choice in enumerate(self.dimension.choices) if same(choice, value)), None)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{value!r} is no number", fix="give a number for a real or integer dimension") from error


def _to_skopt(dimension: Dimension) -> Any:
    if isinstance(dimension, Categorical):
        return SkCategorical(list(range(len(dimension.choices))))
    prior = "log-uniform" if dimension.log else "uniform"
    kind = Real if isinstance(dimension, RealRange) else Integer
    return kind(dimension.low, dimension.high, prior=prior, transform="normalize")


class Space:
    """Named dimensions in a fixed order. A configuration may carry more names than the space: they pass unchanged.

    ``constraints`` are comparisons that every configuration must meet; they and conditions (``when``) may name
    ``fixed`` settings, which also hold what an inactive dimension is trained with. Raises StudyError where one of them
    cannot be read.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        *,
        constraints: Sequence[str] = (),
        fixed: Mapping[str, Scalar] | None = None,
    ) -> None:
        self._axes = {name: _Axis(dimension) for name, dimension in dimensions.items()}
        self._fixed = dict(fixed or {})
        self._conditions = Conditions(dimensions, self._fixed)
        numbers = _numbers(dimensions, self._fixed)
        self._constraints = [Constraint(text, numbers) for text in constraints]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._axes)

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        return {name: axis.dimension for name, axis in self._axes.items()}

    @property
    def size(self) -> float:
        """Number of distinct configurations, constraints apart; infinite where a dimension is real."""
        return self._conditions.size

    @property
    def defaults(self) -> Config:
        """What a dimension is trained with where it is inactive and ``fixed`` tells."""
        return {name: self._fixed[name] for name in self._axes if self._fixed.get(name) is not None}

    def active(self, config: Config) -> tuple[str, ...]:
        """The names that ``config`` needs a value for."""
        return self._conditions.active(config) if self._conditions else self.names

    def canonical(self, config: Config) -> Config:
        """``config`` in plain Python scalars, each in its dimension's type, floats at 12 significant digits.

        Inactive dimensions are left out, so that two configurations that differ in nothing else are one.
        """
        return self._pruned({n: self._axes[n].plain(v) if n in self._axes else plain(v) for n, v in config.items()})

    def contains(self, config: Config) -> bool:
        """Whether every active dimension has a value of ``config`` inside its range, and the constraints hold."""
        inside = all(name in config and self._axes[name].contains(config[name]) for name in self.active(config))
        return inside and self._allows(config)

    def sample(self, n: int, rng: np.random.Generator) -> list[Config]:
        """``n`` independent draws from the priors (log-uniform where asked), of those that meet the constraints.

        Raises StudyError where 10,000 draws in a row do not.
        """
        found: list[Config] = []
        missed, batch = 0, n
        while len(found) < n:
            met = [config for config in map(self._pruned, self._draw(batch, rng)) if self._allows(config)]
            missed = 0 if met else missed + batch
            if missed >= _DRAWS:
                what = f"none of {missed:,} random configurations meets the constraints"
                raise StudyError(what, where="search.constraints", fix="loosen one of them")
            found, batch = [*found, *met], _BATCH
        return found[:n]

    def space_filling(self, n: int, seed: int) -> list[Config]:
        """A maximin Latin hypercube of ``n`` points, without repeats (fewer where the space has no more)."""
        if n < 1:
            return []
        sampler = Lhs(criterion="maximin", iterations=100)
        points = sampler.generate([axis.skopt for axis in self._axes.values()], n, random_state=seed)
        design = [config for config in map(self._pruned, self._decode(points)) if self._allows(config)]
        # points collapse (categories, integers, inactive dimensions) or break a constraint: fill up at random
        spare = self.sample(20 * n, np.random.default_rng(seed))
        return list({config_id(c): c for c in [*design, *spare]}.values())[:n]

    def neighbours(self, config: Config, rng: np.random.Generator, scales: Sequence[float]) -> list[Config]:
        """One neighbour of ``config`` per scale: each number moves by about so much of its (log) range.

        A dimension that the step makes active is drawn at random. Where 20 steps break a constraint, ``config``.
        """
        places = {n: float(self._axes[n].encode([v])[0, 0]) for n, v in config.items() if n in self._axes}
        return [self._perturbed(config, places, rng, scale) for scale in scales]

    def _perturbed(self, config: Config, places: Mapping[str, float], rng: np.random.Generator, scale: float) -> Config:
        for _ in range(_STEPS):
            moved: Config = {
                n: self._axes[n].perturb(v, places[n], rng, scale) if n in places else v for n, v in config.items()
            }
            if self._conditions:
                moved = self._conditions.prune({**self._draw(1, rng)[0], **moved})
            if self._allows(moved):
                return moved
        return config

    def encode(self, configs: Sequence[Config]) -> Array:
        """``[n, d]`` in [0, 1]; two categories take one column, more take one each; constant where inactive."""
        pairs = [(config, self.active(config)) for config in configs]
        columns = [
            axis.encode([config[name] if name in active else None for config, active in pairs])
            for name, axis in self._axes.items()
        ]
        return np.hstack([np.zeros((len(configs), 0)), *columns])

    def _pruned(self, config: Config) -> Config:
        return self._conditions.prune(config) if self._conditions else config

    def _allows(self, config: Config) -> bool:
        return not self._constraints or all(c.holds({**self._fixed, **config}) for c in self._constraints)

    def _draw(self, n: int, rng: np.random.Generator) -> list[Config]:
        """``n`` values of every dimension, the inactive ones too."""
        state = np.random.RandomState(int(rng.integers(2**32)))
        columns = [axis.skopt.rvs(n, random_state=state) for axis in self._axes.values()]
        return self._decode(list(zip(*columns, strict=True)) if columns else [()] * n)

    def _decode(self, rows: Sequence[Sequence[Any]]) -> list[Config]:
        axes = self._axes.items()
        return [{n: axis.decode(v) for (n, axis), v in zip(axes, row, strict=True)} for row in rows]


def _numbers(dimensions: Mapping[str, Dimension], fixed: Mapping[str, Scalar]) -> list[str]:
    """The names that a constraint may compare."""
    values: dict[str, Sequence[Scalar]] = {name: (value,) for name, value in fixed.items()}
    values |= {name: d.choices if isinstance(d, Categorical) else () for name, d in dimensions.items()}
    return [name for name, taken in values.items() if not any(isinstance(value, str) for value in taken)]
