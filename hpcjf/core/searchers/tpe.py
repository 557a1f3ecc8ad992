"""Tree-structured Parzen estimator (Bergstra et al. 2011), each dimension by itself, with the defaults of Optuna."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from scipy.special import logsumexp, ndtr

from hpcjf.core.searchers.base import SearchProblem
from hpcjf.core.searchers.cube import Array, Cube, truncated_normal
from hpcjf.core.searchers.sampling import Candidate, SamplingSearch, random_candidates
from hpcjf.types import Config, Observation

STARTUP, CANDIDATES = 10, 24
_TRIES = 8
"""Proposals of the estimator that may repeat what was tried before one is drawn at random."""


def good_count(n: int) -> int:
    """How many of ``n`` observations count as good."""
    return min(math.ceil(0.1 * n), 25)


def weights(n: int) -> Array:
    """Of ``n`` observations, the oldest first, and the prior: 1 for the newest 25 and it, from there down to 1 / n."""
    share = np.concatenate([np.linspace(1 / max(n, 1), 1, max(0, n - 25)), np.ones(min(n, 25) + 1)])
    return np.asarray(share / share.sum())


class Mixture(Protocol):
    """A density of one dimension."""

    def sample(self, rng: np.random.Generator, n: int) -> Array: ...

    def log(self, values: Array) -> Array: ...


class Numbers:
    """Truncated normals on [0, 1] around what was ``seen`` ``[n]``, the oldest first, and the prior's: 0.5 ± 1.

    A width is the larger gap to the neighbours, within 1 / min(100, n + 2) … 1.
    """

    def __init__(self, seen: Array) -> None:
        order = np.argsort(seen, kind="stable")
        gaps = np.diff(seen[order], prepend=0.0, append=1.0)
        if len(seen) > 1:  # the bounds are no neighbours
            gaps[[0, -1]] = 0.0
        widths = np.empty(len(seen))
        widths[order] = np.maximum(gaps[:-1], gaps[1:])
        self.means = np.append(seen, 0.5)
        self.widths = np.append(widths.clip(1 / min(100, len(seen) + 2), 1.0), 1.0)
        self._weights = weights(len(seen))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        chosen = rng.choice(len(self.means), size=n, p=self._weights)
        return truncated_normal(rng, self.means[chosen], self.widths[chosen])

    def log(self, values: Array) -> Array:
        inside = ndtr((1 - self.means) / self.widths) - ndtr(-self.means / self.widths)
        scale = self._weights / (inside * self.widths * np.sqrt(2 * np.pi))
        apart = (values[:, None] - self.means) / self.widths
        return np.asarray(logsumexp(-0.5 * apart**2, axis=1, b=scale))


class Categories:
    """What was ``seen`` of ``choices`` categories, each observation smoothed by the prior's 1 / (n + 1)."""

    def __init__(self, seen: Array, choices: int) -> None:
        smooth = 1 / (len(seen) + 1)
        rows = (np.eye(choices)[seen.astype(int)] + smooth) / (1 + choices * smooth)
        self.shares = weights(len(seen)) @ np.vstack([rows, np.full(choices, 1 / choices)])

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return rng.choice(len(self.shares), size=n, p=self.shares).astype(np.float64)

    def log(self, values: Array) -> Array:
        return np.asarray(np.log(self.shares[values.astype(int)]))


class TpeSearcher(SamplingSearch):
    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self._cube = Cube(problem)
        self._fitted: list[tuple[Mixture, Mixture]] | None = None

    def tell(self, observation: Observation) -> None:
        super().tell(observation)
        self._fitted = None

    def candidates(self, number: int) -> Iterator[Candidate]:
        good, bad = self.split()
        if good and len(good) + len(bad) >= STARTUP:
            yield from self._estimated(number, good, bad)
        yield from random_candidates(self.problem, number)

    def split(self) -> tuple[list[Config], list[Config]]:
        """The good and the other configurations, the oldest first. What was stopped or failed is the worst."""
        full = self.problem.rungs[-1]
        ranked = [(o.fidelity.steps >= full, value, o) for o, value in self.history.scored]
        ranked.sort(key=lambda entry: (not entry[0], -entry[1], entry[2].trial))
        told = [observation for _, _, observation in ranked]
        n_good = good_count(len(told) + len(self.history.broken))
        sides = told[:n_good], told[n_good:] + self.history.broken
        good, bad = ([o.config for o in sorted(side, key=lambda o: o.trial)] for side in sides)
        return good, bad

    def _estimated(self, number: int, good: list[Config], bad: list[Config]) -> Iterator[Candidate]:
        if self._fitted is None:
            self._fitted = list(zip(self._mixtures(good), self._mixtures(bad), strict=True))
        rng = np.random.default_rng([self.problem.seed, number, 1])
        for _ in range(_TRIES):
            config = self._cube.decode([_likeliest(rng, *pair) for pair in self._fitted])
            if config is not None:
                yield config, {"reason": "model", "good": len(good), "bad": len(bad)}

    def _mixtures(self, configs: list[Config]) -> list[Mixture]:
        columns = (column[~np.isnan(column)] for column in self._cube.encode(configs).T)
        pairs = zip(columns, self._cube.choices, strict=True)
        return [Categories(seen, choices) if choices else Numbers(seen) for seen, choices in pairs]


def _likeliest(rng: np.random.Generator, good: Mixture, bad: Mixture) -> float:
    """Of some draws from ``good`` the one with the largest ratio of the densities, good over bad."""
    drawn = good.sample(rng, CANDIDATES)
    return float(drawn[np.argmax(good.log(drawn) - bad.log(drawn))])
