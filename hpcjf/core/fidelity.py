"""Budgets in global steps. The model axis is the order of the study's models, proxy first."""

from __future__ import annotations

import math


def rungs(lowest: int, highest: int, eta: float) -> tuple[int, ...]:
    """Budgets from ``lowest`` to ``highest``, both included, in a geometric row whose ratio comes closest to ``eta``.

    >>> rungs(10, 90, 3)
    (10, 30, 90)
    """
    if lowest >= highest:
        return (highest,)
    gaps = max(1, round(math.log(highest / lowest) / math.log(eta)))
    inner = (round(lowest * (highest / lowest) ** (gap / gaps)) for gap in range(1, gaps))
    return tuple(sorted({lowest, *inner, highest}))


def marginal_steps(done: int, steps: int) -> int:
    """Global steps still to run from the checkpoint at ``done``; 0 where it is already there."""
    return max(0, steps - done)


def checkpoint_at(reached: int, save_every: int) -> int:
    """Step of the newest checkpoint of a trial that ended early at step ``reached``."""
    return reached // save_every * save_every
