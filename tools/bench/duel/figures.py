"""Figures of finished pairs of processes: ratios with intervals, and whether two sets of reward curves agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t

from duel.meter import Reading

LEVEL = 0.95
LARGEST_DIFFERENCE = 0.1
"""Of the areas under two sets of curves that agree, in shares of the gain."""
_ENDS = 5  # steps averaged at each end of a curve


class Interval(NamedTuple):
    """A mean with Student's interval at ``LEVEL``; NaN bounds for a single value."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        bounds = "" if np.isnan(self.low) else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.mean:.3g}{bounds}"


class Agreement(NamedTuple):
    """Ours less TRL's area under the reward curve over that of a step, in shares of the gain of both together."""

    difference: Interval
    gain: float  # mean reward of the last steps less that of the first, over all curves
    ours: float  # mean reward over all steps
    trl: float

    @property
    def holds(self) -> bool:
        inside = self.difference.low <= 0 <= self.difference.high
        return abs(self.difference.mean) <= LARGEST_DIFFERENCE and inside


def mean(values: Sequence[float]) -> Interval:
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return Interval(float(data.mean()), np.nan, np.nan)
    half = float(t.ppf((1 + LEVEL) / 2, len(data) - 1) * data.std(ddof=1) / np.sqrt(len(data)))
    return Interval(float(data.mean()), float(data.mean()) - half, float(data.mean()) + half)


def ratio(ours: Sequence[float], others: Sequence[float]) -> Interval:
    """Geometric mean of the pairs' ratios: each pair ran one after the other, so that a slow hour slows both."""
    logs = mean([float(np.log(a / b)) for a, b in zip(ours, others, strict=True)])
    return Interval(*(float(np.exp(each)) for each in logs))


def steps_per_cpu_s(reading: Reading) -> float:
    """From the end of the first step to that of the last: everything that a step brings with it, but no warming up."""
    return (len(reading.step_cpu_s) - 1) / (reading.step_cpu_s[-1] - reading.step_cpu_s[0])


def agreement(ours: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> Agreement:
    """Of curves with the same numbers of steps, paired by their seeds."""
    mine, theirs = np.asarray(ours, dtype=np.float64), np.asarray(others, dtype=np.float64)
    both = np.concatenate([mine, theirs])
    gain = float(both[:, -_ENDS:].mean() - both[:, :_ENDS].mean())
    difference = mean(list((mine.mean(1) - theirs.mean(1)) / gain))
    return Agreement(difference, gain, float(mine.mean()), float(theirs.mean()))
