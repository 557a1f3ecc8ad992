"""Figures of one final run, by row or question, as :func:`hpcjf.analysis.shares.share` takes them. None where the run
has none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from hpcjf.analysis.shares import Array
from hpcjf.analysis.sides import Final, Values
from hpcjf.core.pass_at_k import pass_at_k
from hpcjf.tasks.metrics import (
    CORRECT,
    MLPERF_EXACT,
    PLP_SIMILARITY,
    RACE_FORCED,
    RACE_GUESS,
    RACE_LABEL,
    RACE_UNDECIDED,
)


def column(final: Final, name: str) -> Array | None:
    """Of the rows that have it."""
    values = [value for value in final.measured.rows.get(name, ()) if value is not None]
    return np.asarray(values, dtype=np.float64) if values else None


def passes(final: Final, k: int) -> Array | None:
    """pass@k of each row that was sampled."""
    counts = column(final, CORRECT)
    return None if counts is None else np.asarray([pass_at_k(final.samples, int(count), k) for count in counts])


def _rewards(final: Final, name: str) -> Array | None:
    """Test scores of the rows that have the column ``name``."""
    has = [value is not None for value in final.measured.rows.get(name, ())]
    return final.scores[has] if any(has) else None


def _race(final: Final, parts: Callable[[Array, Array, Array], tuple[Array, Array]]) -> Array | None:
    """``[rows, 2]``: what ``parts`` makes of label and guess (1 = yes) and of undecided, over and under the line."""
    label, guess, undecided = (column(final, name) for name in (RACE_LABEL, RACE_GUESS, RACE_UNDECIDED))
    if label is None or guess is None or undecided is None:
        return None
    return np.stack(parts(label, guess, undecided), -1)


METRICS: Mapping[str, Values] = {
    "data race, F1": partial(_race, parts=lambda label, guess, _: (2 * label * guess, label + guess)),
    "data race, precision": partial(_race, parts=lambda label, guess, _: (label * guess, guess)),
    "data race, recall": partial(_race, parts=lambda label, guess, _: (label * guess, label)),
    "data race, accuracy": partial(
        _race, parts=lambda label, guess, undecided: ((label == guess) * (1 - undecided), np.ones_like(label))
    ),
    "data race, neither yes nor no": partial(column, name=RACE_UNDECIDED),
    "data race, forced choice": partial(column, name=RACE_FORCED),
    "mlperf, exact match": partial(column, name=MLPERF_EXACT),
    "mlperf, AvgScore": partial(_rewards, name=MLPERF_EXACT),
    "plp, similarity": partial(column, name=PLP_SIMILARITY),
}
