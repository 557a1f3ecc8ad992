"""What a report shows beside the rewards, by row. These figures read responses more kindly than the rewards do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcjf.tasks import mlperf, plp
from hpcjf.tasks.base import Embedder, Row
from hpcjf.tasks.race import extract_yes_no

RACE_LABEL, RACE_GUESS, RACE_UNDECIDED = "race_label", "race_guess", "race_undecided"
RACE_FORCED = "race_forced"
"""1 where the right one of yes and no is the likelier response."""
MLPERF_EXACT, PLP_SIMILARITY = "mlperf_exact", "plp_similarity"
CORRECT = "correct"
"""Number of sampled responses that are right."""
Columns = dict[str, tuple[float | None, ...]]
"""One value a row, None where a row belongs to another task."""


def row_metrics(rows: Sequence[Row], responses: Sequence[str], embedder: Embedder | None = None) -> Columns:
    """Columns of the tasks that ``rows`` have.

    Race rows of both languages: 1 for the label yes, for the guess yes (the first yes or no that stands as a word of
    its own), and for a response with neither. mlperf: 1 for an exact match. plp: similarity to the nearest reference.
    """
    found: dict[str, dict[int, float]] = {}
    for i, (row, text) in enumerate(zip(rows, responses, strict=True)):
        for name, value in _of_one(row, text).items():
            found.setdefault(name, {})[i] = value
    embedded = [i for i, row in enumerate(rows) if row.task == "plp"]
    if embedded and embedder is not None:
        values = plp.similarities([rows[i] for i in embedded], [responses[i] for i in embedded], embedder)
        found[PLP_SIMILARITY] = dict(zip(embedded, values, strict=True))
    return {name: tuple(map(values.get, range(len(rows)))) for name, values in found.items()}


def _of_one(row: Row, response: str) -> Mapping[str, float]:
    if row.task.startswith("race_"):
        guess = extract_yes_no(response)
        label = row.references[0] == "yes"
        return {RACE_LABEL: float(label), RACE_GUESS: float(guess == "yes"), RACE_UNDECIDED: float(guess is None)}
    if row.task == "mlperf":
        return {MLPERF_EXACT: float(mlperf.exact_match(row, response))}
    return {}
