import pytest

from hpcjf.errors import TaskError
from hpcjf.study import TaskSection
from hpcjf.tasks import needs_embedder, score
from hpcjf.tasks.base import Row

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
