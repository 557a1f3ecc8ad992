import pytest

from hpcjf.errors import TaskError
from hpcjf.study import TaskSection
from hpcjf.tasks import needs_embedder, score
from hpcjf.tasks.base import Row
from hpcjf.tasks.metrics import mean_reward, mlperf_exact_match, race_metrics

ROWS = [
    Row.of("p", ("tell",), "plp"),
    Row.of("c", ("yes",), "race_c"),
    Row.of("m", ("8",), "mlperf"),
    Row.of("f", ("no",), "race_fortran"),
    Row.of("01+02=", ("003",), "arithmetic"),
    Row.of("01-02=", ("-01",), "subtraction"),
]


class Same:
    def embed(self, texts):
        return ((1.0, 0.0) for _ in texts)


def test_each_row_is_scored_by_its_task():
    assert score(ROWS, ["tell", "yes", "8", "no", "003", "-01"], Same()) == [1.0] * 6
    assert score(ROWS, ["", "no", "9", "yes", "3", "+01"], Same()) == [0.0] * 6
    assert score(ROWS[1:], ["yes", "x", "no", "3", "-01"]) == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert score([], []) == []


@pytest.mark.parametrize("response", ["", "yes no", "Yes.", "\ud83d\ude00", "\x00", "8" * 200_000, "a " * 100_000, "٣"])
def test_rewards_stay_in_range_on_hostile_responses(response):
    values = score(ROWS, [response] * len(ROWS), Same())
    assert all(0.0 <= value <= 1.0 for value in values)


def test_embedder_is_needed_for_plp_alone():
    with pytest.raises(TaskError, match="needs a sentence embedder"):
        score(ROWS, [""] * 6)
    assert needs_embedder(TaskSection(names=("race_c", "plp"), path="x"))
    assert not needs_embedder(TaskSection(names=("race_c", "mlperf"), path="x"))


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="shorter"):
        score(ROWS, ["x"], Same())


def race_rows(labels):
    return [Row.of(str(i), (label,), "race_c" if i % 2 else "race_fortran") for i, label in enumerate(labels)]


def test_race_metrics_by_hand():
    rows = [*race_rows(["yes", "yes", "yes", "no", "no"]), Row.of("m", ("yes",), "mlperf")]
    found = race_metrics(rows, ["Yes, surely", "no", "unclear", "yes it is", "There is no race", "yes"])
    assert found.precision == pytest.approx(1 / 2)
    assert found.recall == pytest.approx(1 / 3)
    assert found.f1 == pytest.approx(2 / 5)
    assert (found.undecided, found.rows) == (1, 5)


def test_race_metrics_are_independent_of_the_reward():
    rows = race_rows(["yes", "no"])
    responses = ["It is yes.", "Answer: no"]
    assert score(rows, responses) == [0.0, 0.0]
    assert race_metrics(rows, responses).f1 == 1.0


def test_figures_without_a_denominator_are_none():
    found = race_metrics(race_rows(["no"]), ["no"])
    assert (found.f1, found.precision, found.recall) == (None, None, None)
    assert race_metrics([], []).rows == 0
    assert mlperf_exact_match(race_rows(["no"]), ["no"]) is None
    assert mean_reward([], []) is None


def test_exact_match_and_mean_reward():
    rows = [Row.of("a", ("8",), "mlperf"), Row.of("b", ("Acme", "Birch"), "mlperf"), ROWS[1]]
    assert mlperf_exact_match(rows, ["8", "birch.", "yes"]) == 1.0
    assert mlperf_exact_match(rows, ["it is 8", "birch", "yes"]) == 0.5
    assert mean_reward(rows, [1.0, 0.5, 0.0]) == 0.5
    assert mean_reward(rows, [1.0, 0.5, 0.0], "mlperf") == 0.75
