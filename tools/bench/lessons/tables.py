"""Tables of means with 95 % intervals: two-way bootstrap over training seeds and rows, as in the report of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hpcjf.analysis.compare import Estimate, estimate
from lessons.jobs import Outcome


def of(outcomes: Iterable[Outcome], what: str, less: str | None = None) -> Estimate:
    """Of the scores ``what``, one row of the table a seed, paired with ``less`` where that is to be taken off."""
    found = [np.asarray(each.found[what]) - (np.asarray(each.found[less]) if less else 0.0) for each in outcomes]
    return estimate(np.stack(found))


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
