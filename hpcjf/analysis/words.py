"""Numbers, durations and times as people read them. Nothing here is escaped."""

from __future__ import annotations

import time

from hpcjf.study import SearchSection
from hpcjf.types import Scalar


def text_of(value: Scalar | None) -> str:
    """A hyperparameter or score as people write it, not escaped."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value)


def score_text(score: float | None, sign: str = "") -> str:
    """Three decimals; ``sign`` "+" marks a difference."""
    if score is None:
        return "–"
    return f"{score:{sign}.3f}" if abs(score) < 100 else f"{score:{sign}.4g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def search_words(search: SearchSection) -> str:
    """The method, and all that makes it another one than its name says."""
    parts = [f"{search.method} search" + (f" ({search.acquisition} acquisition)" if search.method == "jfhpo" else "")]
    if search.deterministic:
        parts.append("deterministic")
    if search.warm_start is not None:
        parts.append(f"warm start from {search.warm_start}")
    if search.kl_ceiling is not None:
        parts.append(f"KL at most {search.kl_ceiling:g}")
    return ", ".join(parts)
