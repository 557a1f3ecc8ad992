"""Tables of means with 95 % intervals: two-way bootstrap over training seeds and rows, as in the report of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hpcjf.analysis.compare import Estimate, estimate
from lessons.jobs import Outcome


def of(outcomes: Sequence[Outcome], what: str, *, less: str | None = None, part: str = "") -> Estimate:
    """Of the scores ``what``, less those of ``less``; of rows whose task begins with ``part`` only."""
    found = [np.asarray(each.found[what]) - (np.asarray(each.found[less]) if less else 0.0) for each in outcomes]
    if part:
        kept = [[task.startswith(part) for task in each.found["tasks"]] for each in outcomes]
        found = [values[places] for values, places in zip(found, kept, strict=True)]
    return estimate(np.stack(found))


def win_rate(ours: Sequence[Outcome], theirs: Sequence[Outcome], what: str) -> Estimate:
    """Share of the rows with the higher score, ties half, by seed."""
    pairs = [(np.asarray(a.found[what]), np.asarray(b.found[what])) for a, b in zip(ours, theirs, strict=True)]
    return estimate(np.stack([(a > b) + 0.5 * (a == b) for a, b in pairs]))


def paired(ours: Sequence[Outcome], theirs: Sequence[Outcome], what: str) -> Estimate:
    """Ours less theirs by seed and by row."""
    return estimate(
        np.stack([np.asarray(a.found[what]) - np.asarray(b.found[what]) for a, b in zip(ours, theirs, strict=True)])
    )


def cell(value: Estimate, *, signed: bool = False) -> str:
    form = "+.3f" if signed else ".3f"
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return lines + [f"| {' | '.join(row)} |" for row in rows] + [""]
