"""What a report shows beside the rewards. These read responses more kindly than the rewards do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcjf.tasks import mlperf
from hpcjf.tasks.base import Row
from hpcjf.tasks.race import extract_yes_no


@dataclass(frozen=True, slots=True)
class RaceMetrics:
    """Positive = yes. A figure without a denominator is None. ``undecided`` counts responses without yes or no."""

    f1: float | None
    precision: float | None
    recall: float | None
    undecided: int
    rows: int


def race_metrics(rows: Sequence[Row], responses: Sequence[str]) -> RaceMetrics:
    """Over the race rows of both languages. An undecided response counts as a miss where a race is present."""
    pairs = [
        (row.references[0], extract_yes_no(text))
        for row, text in zip(rows, responses, strict=True)
        if row.task.startswith("race_")
    ]
    hits, found = pairs.count(("yes", "yes")), sum(guess == "yes" for _, guess in pairs)
    races = sum(label == "yes" for label, _ in pairs)
    return RaceMetrics(
        f1=_ratio(2 * hits, found + races),
        precision=_ratio(hits, found),
        recall=_ratio(hits, races),
        undecided=sum(guess is None for _, guess in pairs),
        rows=len(pairs),
    )


def mlperf_exact_match(rows: Sequence[Row], responses: Sequence[str]) -> float | None:
    """Share of the mlperf rows that are answered exactly; None without such rows."""
    right = [mlperf.exact_match(row, text) for row, text in zip(rows, responses, strict=True) if row.task == "mlperf"]
    return _ratio(sum(right), len(right))


def mean_reward(rows: Sequence[Row], rewards: Sequence[float], task: str | None = None) -> float | None:
    """Mean over all rows, or over those of one task; None without such rows."""
    chosen = [value for row, value in zip(rows, rewards, strict=True) if task in (None, row.task)]
    return _ratio(sum(chosen), len(chosen))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
