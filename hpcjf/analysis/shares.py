"""A share, or a difference of two, with its interval by a two-way bootstrap over training seeds and rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcjf.analysis.compare import DRAWS, Estimate

Array = NDArray[np.float64]
_PART = 250
"""Draws at a time, of ``DRAWS``: bounds the memory."""


def share(ours: Sequence[Array], theirs: Sequence[Array] = ()) -> Estimate | None:
    """Mean over seeds and rows of ``ours``, by seed ``[rows]``; or by seed ``[rows, 2]`` the sum of the first over that
    of the second column, 0 where there is nothing to share. Minus that of ``theirs``, which has the same seeds and rows
    and is drawn with them: paired. None without seeds."""
    if not ours:
        return None
    parts = np.concatenate([np.stack(list(map(_fraction, side))) for side in (ours, theirs) if side], axis=-1)
    seeds, rows, _ = parts.shape
    rng = np.random.default_rng(0)
    draws = [_values(parts, _counts(rng, seeds), _counts(rng, rows)) for _ in range(DRAWS // _PART)]
    low, high = np.percentile(np.concatenate(draws), [2.5, 97.5])
    [mean] = _values(parts, np.ones((1, seeds)), np.ones((1, rows)))
    by_seed = _values(parts, np.eye(seeds), np.ones((seeds, rows)))
    return Estimate(float(mean), float(low), float(high), tuple(map(float, by_seed)), rows)


def _fraction(values: Array) -> Array:
    return values if values.ndim == 2 else np.stack([values, np.ones_like(values)], axis=-1)


def _counts(rng: np.random.Generator, count: int) -> Array:
    """How often each of ``count`` places is drawn when as many are, ``[_PART, count]``."""
    places = rng.integers(count, size=(_PART, count)) + count * np.arange(_PART)[:, None]
    return np.bincount(places.ravel(), minlength=_PART * count).reshape(_PART, count).astype(np.float64)


def _values(parts: Array, seeds: Array, rows: Array) -> Array:
    """``[n]`` of ``parts`` ``[S, R, 2 or 4]`` with ``seeds`` ``[n, S]`` and ``rows`` ``[n, R]`` taken so many times."""
    sums = np.einsum("ns,snw->nw", seeds, rows @ parts)
    over, under = sums[:, ::2], sums[:, 1::2]
    shares = np.divide(over, under, out=np.zeros_like(over), where=under != 0)
    found: Array = shares[:, 0] - shares[:, 1:].sum(axis=1)
    return found
