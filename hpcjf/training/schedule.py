"""The learning rate over global steps."""

from __future__ import annotations

import math
from typing import Literal


def rate_factor(kind: Literal["constant", "cosine"], taken: int, warmup: int, horizon: int) -> float:
    """Share of the peak rate for the next step, after ``taken`` steps with an update.

    Linear warm-up over ``warmup`` steps, whose first is already above 0; then constant, or a half cosine that would
    reach 0 at ``horizon``. All in global steps.
    """
    if taken < warmup:
        return (taken + 1) / (warmup + 1)
    if kind == "constant":
        return 1.0
    progress = min(1.0, (taken - warmup) / max(1, horizon - warmup))
    return 0.5 * (1 + math.cos(math.pi * progress))
