from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.core.fidelity import checkpoint_at, marginal_steps, rungs


@pytest.mark.parametrize(
    ("lowest", "highest", "eta", "expected"),
    [
        (10, 90, 3, (10, 30, 90)),
        (10, 100, 3, (10, 32, 100)),
        (1, 8, 2, (1, 2, 4, 8)),
        (5, 5, 3, (5,)),
        (50, 60, 3, (50, 60)),
        (1, 3, 1.01, (1, 2, 3)),
    ],
)
def test_rungs(lowest: int, highest: int, eta: float, expected: tuple[int, ...]) -> None:
    assert rungs(lowest, highest, eta) == expected


@given(st.integers(1, 500), st.integers(0, 5000), st.floats(1.1, 10))
def test_rungs_rise_from_the_smallest_to_the_full_budget(lowest: int, more: int, eta: float) -> None:
    row = rungs(lowest, lowest + more, eta)
    assert row[0] == lowest
    assert row[-1] == lowest + more
    assert all(a < b for a, b in pairwise(row))


def test_a_promotion_pays_for_the_missing_steps_only() -> None:
    assert marginal_steps(30, 90) == 60
    assert marginal_steps(0, 90) == 90
    assert marginal_steps(90, 30) == 0


def test_an_interrupted_trial_goes_on_from_its_newest_checkpoint() -> None:
    assert [checkpoint_at(step, 10) for step in (0, 9, 10, 37)] == [0, 0, 10, 30]
