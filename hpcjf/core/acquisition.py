"""The one-step value of an observation for the target: plain numpy, arrays ``[n]`` throughout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]


def lookahead_std(covariance: Array, variance: Array, noise: Array | float) -> Array:
    """σ̃: the standard deviation of the change that observing y(φ, m, r) makes to the target's posterior mean.

    ``covariance`` is that of f_T(φ) at full budget and y(φ, m, r), ``variance`` y's without noise.
    """
    return np.asarray(np.abs(covariance) / np.sqrt(variance + noise))


def expected_improvement(mean: Array, std: Array, incumbent: float) -> Array:
    """E[max(0, X − incumbent)] of X ~ N(mean, std²); larger is better, 0 at std = 0 below the incumbent."""
    gain = np.asarray(mean - incumbent, dtype=np.float64)
    safe = np.where(std > 0, std, 1.0)
    z = gain / safe
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.where(std > 0, np.maximum(gain * ndtr(z) + safe * density, 0.0), np.maximum(gain, 0.0))


def feasibility(inputs: Array, seen: Array, succeeded: Array, reach: float = 0.2) -> Array:
    """Probability that a trial at ``inputs [n, d]`` gives a score, from trials ``seen [k, d]``, ``succeeded [k]`` 0/1.

    Neighbours weighted by distance (``reach`` is the root mean square per column), and one success as the prior.
    """
    squared = np.mean((inputs[:, None, :] - seen[None, :, :]) ** 2, axis=2) if len(seen) else np.zeros((len(inputs), 0))
    weights = np.exp(-0.5 * squared / reach**2)
    return np.asarray((1.0 + weights @ succeeded) / (1.0 + weights.sum(axis=1)))
