import math
from collections.abc import Sequence
from typing import Any

import pytest

from hpcjf.errors import TaskError, TrainingError
from hpcjf.tasks.base import Row
from hpcjf.training.judge import Judge

ROWS = [Row.of(f"{i}+1=", (str(i + 1),), "arithmetic") for i in range(4)]
TEXTS = ["1", "x", "3", "x"]


def numbers(rows: Sequence[Row], texts: Sequence[str]) -> list[float]:
    return [float(int(text)) for text in texts]


def test_what_the_reward_gives_is_passed_on() -> None:
    given = [1, None, 0.5, math.inf]
    assert Judge(lambda rows, texts: given)(ROWS, TEXTS) == [1.0, None, 0.5, math.inf]


def test_one_that_raises_costs_that_completion_and_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    judge = Judge(numbers)
    assert judge(ROWS, TEXTS) == [1.0, None, 3.0, None]
    told = capsys.readouterr().err
    assert "ValueError" in told
    assert "'x'" in told
    assert judge(ROWS[:2], ["x", "x"]) == [None, None]
    assert capsys.readouterr().err == ""


def test_a_reward_that_only_raises_is_broken() -> None:
    with pytest.raises(TrainingError, match=r"the reward raises ValueError.*every completion"):
        Judge(numbers)(ROWS, ["x"] * 4)


def test_a_fault_that_is_no_completion_s_ends_the_trial() -> None:
    def without_embedder(rows: Sequence[Row], texts: Sequence[str]) -> list[float]:
        raise TaskError("task plp needs a sentence embedder")

    with pytest.raises(TaskError):
        Judge(without_embedder)(ROWS, TEXTS)


@pytest.mark.parametrize(
    ("given", "said"),
    [([1.0] * 3, "3 values for 4 completions"), (0.5, "float, not a list"), (["high"] * 4, "no number")],
)
def test_anything_but_a_number_a_completion_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        Judge(lambda rows, texts: given)(ROWS, TEXTS)
