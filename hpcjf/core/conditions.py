"""Which dimensions of a space are active: a dimension's ``when`` names values of others that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from hpcjf.errors import StudyError
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config, Scalar


class Conditions:
    """A dimension is active where every name in its ``when`` has one of the listed values.

    Names are dimensions, which must be active themselves, or ``fixed`` settings. False where there is no ``when``.
    Raises StudyError for an unknown name, a value that the dimension named never has, and a cycle.
    """

    def __init__(self, dimensions: Mapping[str, Dimension], fixed: Mapping[str, Scalar] | None = None) -> None:
        self._dimensions, self._fixed = dimensions, fixed or {}
        self._when = {name: dimension.when or {} for name, dimension in dimensions.items()}
        self._parents = {other for when in self._when.values() for other in when if other in dimensions}
        for name in dimensions:
            self._check(name)
        self._order = self._parents_first()

    def __bool__(self) -> bool:
        return any(self._when.values())

    def active(self, config: Config) -> tuple[str, ...]:
        """The active dimensions of ``config``, every one after those that it depends on."""
        found: dict[str, None] = {}
        for name in self._order:
            if all(self._met(other, values, config, found) for other, values in self._when[name].items()):
                found[name] = None
        return tuple(found)

    def prune(self, config: Config) -> Config:
        """``config`` without its inactive dimensions; names beyond the space stay."""
        active = self.active(config)
        return {name: value for name, value in config.items() if name in active or name not in self._dimensions}

    @property
    def possible(self) -> frozenset[str]:
        """Dimensions that are active somewhere in the space."""
        return frozenset(name for active, _ in self._cases() for name in active)

    @property
    def size(self) -> float:
        """Number of distinct configurations; infinite where a dimension that can be active is real."""
        counts = {name: count(dimension) for name, dimension in self._dimensions.items() if name not in self._parents}
        return sum(
            ways * math.prod(counts[name] for name in active if name in counts) for active, ways in self._cases()
        )

    def _cases(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Dimensions that are active together, with how many values of those that others depend on lead there."""
        found: list[tuple[dict[str, Scalar], int]] = [({}, 1)]
        for parent in (name for name in self._order if name in self._parents):
            without = [case for case in found if parent not in self.active(case[0])]
            found = without + [
                ({**config, parent: value}, ways * many)
                for config, ways in found
                if parent in self.active(config)
                for value, many in self._told_apart(parent)
            ]
        return ((self.active(config), ways) for config, ways in found)

    def _met(self, other: str, values: tuple[Scalar, ...], config: Config, active: Mapping[str, None]) -> bool:
        source = config if other in self._dimensions else self._fixed
        known = other in source and (other in active or other not in self._dimensions)
        return known and any(same(source[other], value) for value in values)

    def _check(self, name: str) -> None:
        where = f"space.{name}.when"
        for other, values in self._when[name].items():
            dimension = self._dimensions.get(other)
            if dimension is None and other not in self._fixed:
                known = sorted({*self._dimensions, *self._fixed} - {name})
                raise StudyError(f"nothing is called {other}", where=where, fix=f"known: {', '.join(known)}")
            if isinstance(dimension, RealRange):
                fix = "name a categorical or an integer dimension"
                raise StudyError(f"{other} is a real range, which meets no single value", where=where, fix=fix)
            foreign = [value for value in values if dimension is not None and not _has(dimension, value)]
            if foreign:
                fix = "list values of its own range"
                raise StudyError(f"space.{other} never is {foreign[0]!r}", where=where, fix=fix)

    def _parents_first(self) -> tuple[str, ...]:
        graph = {name: [other for other in when if other in self._dimensions] for name, when in self._when.items()}
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            circle = error.args[1]
            what = f"{' needs '.join(reversed(circle))}, in a circle"
            raise StudyError(what, where=f"space.{circle[0]}.when", fix="take one of them out") from error

    def _told_apart(self, parent: str) -> Iterator[tuple[Scalar, int]]:
        """The values of ``parent`` that a ``when`` names, and NaN for all others; each with how many there are."""
        listed = [value for when in self._when.values() for value in when.get(parent, ())]
        named = [value for i, value in enumerate(listed) if not any(same(value, other) for other in listed[:i])]
        yield from ((value, 1) for value in named)
        others = count(self._dimensions[parent]) - len(named)
        if others:
            yield math.nan, int(others)


def count(dimension: Dimension) -> float:
    """Number of distinct values, infinite for a real range."""
    match dimension:
        case RealRange():
            return math.inf
        case IntegerRange(low=low, high=high):
            return high - low + 1
        case Categorical(choices=choices):
            return len(choices)


def same(left: Scalar, right: Scalar) -> bool:
    """Equality as in a study file, where true is not 1."""
    return left == right and isinstance(left, bool) is isinstance(right, bool)


def _has(dimension: Categorical | IntegerRange, value: Scalar) -> bool:
    if isinstance(dimension, Categorical):
        return any(same(value, choice) for choice in dimension.choices)
    return isinstance(value, int) and not isinstance(value, bool) and dimension.low <= value <= dimension.high
