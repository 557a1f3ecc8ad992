"""How alike two models rank configurations: rank correlations with bootstrap intervals. Arrays are ``[n]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ENOUGH, LOW = 5, 0.5
"""Configurations that both models must have scored, and the Spearman below which one is no guide to the other."""
DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Correlation:
    """A rank correlation and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over ``count`` configurations; None under five of them, or where one side's scores are all equal."""

    count: int
    spearman: Correlation | None
    kendall: Correlation | None

    @property
    def verdict(self) -> Literal["unknown", "low", "unclear", "high"]:
        """``low`` by the estimate alone, since a missed warning costs more than a false one; ``high`` only where the
        whole interval is."""
        if self.spearman is None:
            return "unknown"
        if self.spearman.value < LOW:
            return "low"
        return "high" if self.spearman.low >= LOW else "unclear"


def agreement(left: Array, right: Array, seed: int = 0) -> Agreement:
    """Of two models' scores of the same configurations."""
    if len(left) < ENOUGH:
        return Agreement(len(left), None, None)
    return Agreement(len(left), _correlation(spearman, left, right, seed), _correlation(kendall, left, right, seed))


def spearman(left: Array, right: Array) -> float | None:
    """Pearson's correlation of the ranks, ties at their mean rank; None where one side is constant."""
    x, y = _ranks(left), _ranks(right)
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale else None


def kendall(left: Array, right: Array) -> float | None:
    """Tau-b; None where one side is constant."""
    upper = np.triu_indices(len(left), k=1)
    x = np.sign(left[:, None] - left[None, :])[upper]
    y = np.sign(right[:, None] - right[None, :])[upper]
    scale = np.sqrt(np.abs(x).sum() * np.abs(y).sum())
    return float((x * y).sum() / scale) if scale else None


def _correlation(
    statistic: Callable[[Array, Array], float | None], left: Array, right: Array, seed: int
) -> Correlation | None:
    """With the percentile interval over 2,000 draws of n configurations with replacement, all ties left out."""
    value = statistic(left, right)
    if value is None:
        return None
    n = len(left)
    drawn = (statistic(left[rows], right[rows]) for rows in np.random.default_rng(seed).integers(n, size=(DRAWS, n)))
    low, high = np.percentile([each for each in drawn if each is not None], [2.5, 97.5])
    return Correlation(value, float(low), float(high))


def _ranks(values: Array) -> Array:
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: Array = below + (equal + 1) / 2
    return ranks
