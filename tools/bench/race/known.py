"""The common part of the problems: a function known over the whole space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, lru_cache

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.study import Dimension
from hpcjf.types import Config, Scalar
from race.cube import Cube
from race.problem import Array, Curve

_SAMPLE, _CLIMBERS = 8192, 64
_CURVES = 2048
"""Curves kept; one of 150 steps takes 6 kB."""


class Known(ABC):
    """A ``Problem`` whose mean is at hand everywhere; the noise of a run is drawn from (seed, configuration, model)."""

    def __init__(
        self,
        name: str,
        space: Mapping[str, Dimension],
        recipe: Config,
        models: tuple[ModelFidelity, ...],
        rungs: tuple[int, ...],
        dynamics: bool = False,
    ) -> None:
        self.name, self.space, self.recipe, self.models, self.rungs = name, space, recipe, models, rungs
        self.dynamics = dynamics
        self._cube = Cube(space)
        self._kept = lru_cache(_CURVES)(self._draw)

    @abstractmethod
    def _run(self, point: Array, model: str, rng: np.random.Generator) -> Curve:
        """One run of the configuration at ``point`` of the unit cube, ``[d]``."""

    @abstractmethod
    def _finals(self, points: Array) -> Array:
        """``[n]`` noise-free final scores on the target; NaN where it diverges."""

    def curve(self, config: Config, model: str, seed: int) -> Curve:
        return self._kept(tuple(self._cube.canonical(config).items()), model, seed)

    def truth(self, config: Config) -> float:
        value = self._finals(self._cube.points([self._cube.canonical(config)]))[0]
        return float(value) if np.isfinite(value) else self.span[0]

    def startup_seconds(self, model: str) -> float:
        """1 % of the target's mean full training: at the paper's scale, 5 minutes before 8.8 hours."""
        return 0.01 * self._full_seconds

    @cached_property
    def span(self) -> tuple[float, float]:
        """Of a dense random sample, whose extremes are pushed on by random steps of shrinking width."""
        points = self._cube.snapped(np.random.default_rng(0).random((_SAMPLE, len(self.space))))
        values = self._finals(points)
        return -self._climbed(points, values, -1.0), self._climbed(points, values, 1.0)

    def _climbed(self, points: Array, values: Array, sign: float) -> float:
        """The greatest ``sign`` times final score that is found."""
        rng = np.random.default_rng(0)
        best = np.argsort(-np.nan_to_num(sign * values, nan=-np.inf))[:_CLIMBERS]
        climbers, heights = points[best], sign * values[best]
        for scale in np.geomspace(0.2, 0.002, 40):
            moved = climbers + scale * rng.standard_normal(climbers.shape) * (rng.random(climbers.shape) < 0.5)
            moved = self._cube.snapped(moved.clip(0.0, 1.0))
            reached = sign * self._finals(moved)
            better = reached > heights
            climbers[better], heights[better] = moved[better], reached[better]
        return float(np.nanmax(heights))

    @cached_property
    def _full_seconds(self) -> float:
        """Mean length of the target's full training over the space."""
        configs = self._cube.configs(np.random.default_rng(1).random((128, len(self.space))))
        return float(np.mean([self.curve(config, self.models[-1].name, 0).seconds[-1] for config in configs]))

    def _draw(self, items: tuple[tuple[str, Scalar], ...], model: str, seed: int) -> Curve:
        config = dict(items)
        place = [each.name for each in self.models].index(model)
        rng = np.random.default_rng([seed, int(config_id(config), 16), place])
        return self._run(self._cube.points([config])[0], model, rng)


def unwatched(seconds: Array, score: Array, broken: int | None = None) -> Curve:
    """A run of which only the score is known."""
    nothing = np.full(len(score), np.nan)
    return Curve(seconds, score, nothing, nothing, nothing, broken)
