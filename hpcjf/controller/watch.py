"""What live attempts write: their traces, read a few rows at a time, and the stopping rule over them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.lifecycle import Attempt
from hpcjf.core.stopping import StopDecision, decide
from hpcjf.errors import StoreError
from hpcjf.store.layout import RunLayout
from hpcjf.store.traces import TRACE_COLUMNS, read_trace
from hpcjf.study import StoppingSection
from hpcjf.types import Purpose, Trial

Rows = NDArray[np.void]
_COMMON = [column.name for column in TRACE_COLUMNS]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a live attempt stands: last step, smoothed-free last values, last evaluation (None where none was)."""

    step: int
    reward: float
    kl: float
    score: float | None
    seconds: float


class TraceWatch:
    """Rows seen so far of each live attempt, by attempt name."""

    def __init__(self, layout: RunLayout, stopping: StoppingSection) -> None:
        self._layout, self._stopping = layout, stopping
        self._rows: dict[str, Rows] = {}
        self._past: dict[str, list[Rows]] = {}

    def read(self, attempt: Attempt) -> Rows | None:
        """All rows of an attempt, None before its first."""
        known = self._rows.get(attempt.name)
        path = self._layout.attempt(attempt.trial, attempt.number).trace
        fresh = read_trace(path, 0 if known is None else len(known))
        if len(fresh):
            known = fresh if known is None else np.concatenate([known, fresh])
            self._rows[attempt.name] = known
        return known

    def whole(self, attempt: Attempt, before: Sequence[Attempt]) -> Rows | None:
        """All rows of the training that the attempt goes on with, one a step, as far as ``read`` has brought them, in
        the columns that every trace has: attempts of another version may have others of the objective.

        ``before``: earlier attempts of the configuration on the model, in their order. What they wrote up to the
        checkpoint that this one went on from belongs to the same training.
        """
        if attempt.name not in self._past:
            self._past[attempt.name] = list(self._past_rows(before))
        own = self._rows.get(attempt.name)
        parts = [*self._past[attempt.name], *([] if own is None else [own])]
        if not parts:
            return None
        whole = parts.pop()[_COMMON]
        for past in reversed(parts):
            whole = np.concatenate([past[past["step"] < whole["step"][0]][_COMMON], whole])
        return whole

    def _past_rows(self, before: Sequence[Attempt]) -> Iterator[Rows]:
        for attempt in before:
            with suppress(StoreError):  # noted when that attempt ended
                rows = read_trace(self._layout.attempt(attempt.trial, attempt.number).trace)
                if len(rows):
                    yield rows

    def verdict(self, trial: Trial, attempt: Attempt, before: Sequence[Attempt] = ()) -> StopDecision | None:
        """Whether the rule stops the attempt, whose earlier ones are ``before``.

        Final runs are never stopped: the comparison needs them whole.
        """
        if attempt.name not in self._rows or attempt.stop or trial.purpose is not Purpose.SEARCH:
            return None
        whole = self.whole(attempt, before)
        return None if whole is None else decide(whole, self._stopping)

    def progress(self, attempt: Attempt) -> Progress | None:
        rows = self._rows.get(attempt.name)
        if rows is None:
            return None
        last = rows[-1]
        seconds = float(last["time"] - rows[0]["time"])
        return Progress(int(last["step"]), float(last["reward_mean"]), float(last["kl"]), last_score(rows), seconds)

    def forget(self, attempt: Attempt) -> None:
        self._rows.pop(attempt.name, None)
        self._past.pop(attempt.name, None)


def last_score(rows: Rows) -> float | None:
    """The newest evaluation in a trace."""
    scores = rows["eval_score"][np.isfinite(rows["eval_score"])]
    return float(scores[-1]) if len(scores) and math.isfinite(scores[-1]) else None
