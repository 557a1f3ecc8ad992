"""A space as the unit cube, apart from the code of the methods that are raced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpcjf.core.identity import plain
from hpcjf.study import Categorical, Dimension, IntegerRange
from hpcjf.types import Config, Scalar
from race.problem import Array


class Cube:
    """One column a dimension, log-scaled where asked; choices lie evenly from 0 to 1."""

    def __init__(self, space: Mapping[str, Dimension]) -> None:
        self.space = space

    def canonical(self, config: Config) -> Config:
        """Its values of the space's own names, each in the dimension's type."""
        return {name: _typed(dimension, config[name]) for name, dimension in self.space.items()}

    def points(self, configs: Sequence[Config]) -> Array:
        """``[n, d]``."""
        columns = [_places(dimension, [c[name] for c in configs]) for name, dimension in self.space.items()]
        return np.stack(columns, axis=1)

    def configs(self, points: Array) -> list[Config]:
        """The nearest ones."""
        columns = [_values(each, place) for each, place in zip(self.space.values(), points.T, strict=True)]
        rows = zip(*columns, strict=True)
        return [self.canonical(dict(zip(self.space, row, strict=True))) for row in rows]

    def snapped(self, points: Array) -> Array:
        """``points`` with integers and choices at the nearest of their values."""
        pairs = zip(self.space.values(), points.T, strict=True)
        columns = [_places(dimension, _values(dimension, places)) for dimension, places in pairs]
        return np.stack(columns, axis=1)


def _typed(dimension: Dimension, value: Scalar) -> Scalar:
    if isinstance(dimension, Categorical):
        return plain(value)
    return round(float(value)) if isinstance(dimension, IntegerRange) else float(plain(float(value)))


def _places(dimension: Dimension, values: Sequence[Scalar]) -> Array:
    if isinstance(dimension, Categorical):
        return np.array([dimension.choices.index(value) for value in values]) / (len(dimension.choices) - 1)
    low, high, numbers = float(dimension.low), float(dimension.high), np.array(values, dtype=np.float64)
    if dimension.log:
        low, high, numbers = np.log(low), np.log(high), np.log(numbers)
    return np.asarray((numbers - low) / (high - low), dtype=np.float64)


def _values(dimension: Dimension, places: Array) -> list[Scalar]:
    if isinstance(dimension, Categorical):
        return [dimension.choices[i] for i in np.rint(places * (len(dimension.choices) - 1)).astype(int)]
    low, high = float(dimension.low), float(dimension.high)
    numbers = low * (high / low) ** places if dimension.log else low + places * (high - low)
    return list(map(round, numbers) if isinstance(dimension, IntegerRange) else map(float, numbers))
