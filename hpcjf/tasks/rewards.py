"""Rewards of responses, whatever mix of tasks they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hpcjf.errors import TaskError
from hpcjf.study import TaskSection
from hpcjf.tasks import arithmetic, mlperf, plp, race
from hpcjf.tasks.base import Embedder, Row

_REWARDS: Mapping[str, Callable[[Row, str], float]] = {
    "arithmetic": arithmetic.reward,
    "subtraction": arithmetic.reward,
    "race_c": race.reward,
    "race_fortran": race.reward,
    "mlperf": mlperf.reward,
}


def score(rows: Sequence[Row], responses: Sequence[str], embedder: Embedder | None = None) -> list[float]:
    """One reward in [0, 1] for each row and its response. Raises TaskError where plp rows meet no embedder."""
    values = [
        0.0 if row.task == "plp" else _REWARDS[row.task](row, text) for row, text in zip(rows, responses, strict=True)
    ]
    embedded = [i for i, row in enumerate(rows) if row.task == "plp"]
    if embedded:
        if embedder is None:
            raise TaskError("task plp needs a sentence embedder", where="task.embedder", fix="name a model there")
        found = plp.rewards([rows[i] for i in embedded], [responses[i] for i in embedded], embedder)
        for i, value in zip(embedded, found, strict=True):
            values[i] = value
    return values


def needs_embedder(settings: TaskSection) -> bool:
    return "plp" in settings.names
