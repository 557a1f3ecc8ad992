"""BOHB (Falkner et al. 2018): Hyperband whose new configurations come from densities of good and bad ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hpcjf.core.searchers.base import SearchProblem
from hpcjf.core.searchers.cube import Array, Cube, truncated_normal
from hpcjf.core.searchers.halving import HyperbandSearcher
from hpcjf.core.searchers.rungs import Entry
from hpcjf.core.searchers.sampling import Candidate
from hpcjf.types import Observation

RANDOM_FRACTION, TOP_PERCENT, SAMPLES, WIDENING, MIN_WIDTH = 1 / 3, 15, 64, 3.0, 1e-3
"""The defaults of the paper and of HpBandSter."""


class Density:
    """A product-kernel density of ``points`` ``[n, d]``: Gaussian kernels for numbers, Aitchison-Aitken for categories.

    Widths are the normal reference rule 1.06 σ n^(-1 / (4 + d)) for both, as statsmodels' ``KDEMultivariate`` has them
    for HpBandSter. Beyond that, a category's kernel knows all ``choices``, seen or not, and is at most uniform.
    """

    def __init__(self, points: Array, choices: Sequence[int]) -> None:
        self.points, self._choices = points, np.array(choices)
        n, d = points.shape
        widest = np.where(self._choices > 0, 1 - 1 / np.maximum(self._choices, 1), np.inf)
        self.widths = np.minimum(np.maximum(1.06 * points.std(axis=0) * n ** (-1 / (4 + d)), MIN_WIDTH), widest)

    def at(self, points: Array) -> Array:
        """The density at ``points`` ``[m, d]``: ``[m]``."""
        apart = points[:, None, :] - self.points[None, :, :]
        bell = np.exp(-0.5 * (apart / self.widths) ** 2) / (self.widths * np.sqrt(2 * np.pi))
        other = self.widths / np.maximum(self._choices - 1, 1)
        kernels = np.where(self._choices > 0, np.where(apart == 0, 1 - self.widths, other), bell)
        return np.asarray(kernels.prod(axis=2).mean(axis=1))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """``n`` points around those of the density, with numbers drawn ``WIDENING`` times as wide: ``[n, d]``."""
        centres = self.points[rng.integers(len(self.points), size=n)]
        numbers = truncated_normal(rng, centres, WIDENING * self.widths)
        redrawn = np.floor(rng.random(centres.shape) * self._choices)
        categories = np.where(rng.random(centres.shape) < self.widths, redrawn, centres)
        return np.where(self._choices > 0, categories, numbers)


class BohbSearcher(HyperbandSearcher):
    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self._cube = Cube(problem)
        self._fitted: tuple[int, Density, Density] | None = None

    def tell(self, observation: Observation) -> None:
        super().tell(observation)
        self._fitted = None

    def candidates(self, number: int) -> Iterator[Candidate]:
        rng = np.random.default_rng([self.problem.seed, number, 1])
        if rng.random() >= RANDOM_FRACTION and (model := self.model()):
            budget, good, bad = model
            points = good.sample(rng, SAMPLES)
            ratio = np.maximum(good.at(points), 1e-32) / np.maximum(bad.at(points), 1e-32)
            for chosen in np.argsort(-ratio, kind="stable"):
                config = self._cube.decode(points[chosen])
                if config is not None:
                    yield config, {"reason": "model", "model_budget": budget, "good_over_bad": float(ratio[chosen])}
        yield from super().candidates(number)

    def model(self) -> tuple[int, Density, Density] | None:
        """Budget, density of the good and of the bad, of the highest budget that has enough of both."""
        if self._fitted is None:
            fits = (self._fit(steps) for steps in reversed(self.problem.rungs))
            self._fitted = next((fit for fit in fits if fit), None)
        return self._fitted

    def _fit(self, steps: int) -> tuple[int, Density, Density] | None:
        """The best 15 % and the others, but no fewer than d + 1 on either side."""
        entries = sorted(self._on(steps), key=lambda entry: (-entry.value, entry.trial))
        least = len(self._cube.choices) + 1
        n_good = max(least, TOP_PERCENT * len(entries) // 100)
        n_bad = max(least, (100 - TOP_PERCENT) * len(entries) // 100)
        if len(entries) < n_good + least:
            return None
        points = self._cube.encode([entry.config for entry in entries[: n_good + n_bad]])
        halves = (self._imputed(points[:n_good]), self._imputed(points[n_good:]))
        good, bad = (Density(half, self._cube.choices) for half in halves)
        return steps, good, bad

    def _on(self, steps: int) -> Iterator[Entry]:
        for (bracket, rung), entries in self._ended.items():
            if self.brackets[bracket % len(self.brackets)].budgets[rung] == steps:
                yield from entries.values()

    def _imputed(self, points: Array) -> Array:
        """Missing values replaced by those of other points, or by any where none has one."""
        rng = np.random.default_rng([self.problem.seed, len(points)])
        filled = points.copy()
        for column, choices in zip(filled.T, self._cube.choices, strict=True):
            missing = np.isnan(column)
            anything = rng.integers(choices, size=len(column)) if choices else rng.random(len(column))
            column[missing] = anything[missing] if missing.all() else rng.choice(column[~missing], size=missing.sum())
        return filled
