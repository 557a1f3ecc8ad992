from __future__ import annotations

from collections.abc import Sequence

from hpcjf.tasks import score
from hpcjf.tasks.base import Row
from hpcjf.tasks.metrics import row_metrics


class Lengths:
    """Texts of one length are alike."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(i == len(text)) for i in range(9)] for text in texts]


def race_rows(labels: Sequence[str]) -> list[Row]:
    return [Row.of(str(i), (label,), "race_c" if i % 2 else "race_fortran") for i, label in enumerate(labels)]


def test_race_columns_by_hand() -> None:
    rows = [*race_rows(["yes", "yes", "yes", "no", "no"]), Row.of("m", ("yes",), "mlperf")]
    found = row_metrics(rows, ["Yes, surely", "no", "unclear", "yes it is", "There is no race", "yes"])
    assert found["race_label"] == (1, 1, 1, 0, 0, None)
    assert found["race_guess"] == (1, 0, 0, 1, 0, None)
    assert found["race_undecided"] == (0, 0, 1, 0, 0, None)
    assert found["mlperf_exact"] == (None, None, None, None, None, 1)


def test_they_are_independent_of_the_reward() -> None:
    rows, responses = race_rows(["yes", "no"]), ["It is yes.", "Answer: no"]
    assert score(rows, responses) == [0.0, 0.0]
    assert row_metrics(rows, responses)["race_guess"] == (1, 0)


def test_exact_match_and_similarity() -> None:
    rows = [Row.of("a", ("8",), "mlperf"), Row.of("b", ("four", "seven77"), "plp")]
    found = row_metrics(rows, ["it is 8", "1234"], Lengths())
    assert found == {"mlperf_exact": (0.0, None), "plp_similarity": (None, 1.0)}
    assert row_metrics(rows, ["8", "12345"], Lengths()) == {"mlperf_exact": (1.0, None), "plp_similarity": (None, 0.0)}


def test_tasks_without_metrics_have_no_column() -> None:
    assert row_metrics([Row.of("01+02=", ("003",), "arithmetic")], ["003"]) == {}
