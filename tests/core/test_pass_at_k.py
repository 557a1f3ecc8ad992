from __future__ import annotations

from itertools import combinations

import pytest

from hpcjf.core.pass_at_k import pass_at_k


@pytest.mark.parametrize("samples", [1, 4, 7])
def test_it_is_the_share_of_all_draws_of_k_with_a_right_one(samples: int) -> None:
    for right in range(samples + 1):
        for k in range(1, samples + 1):
            draws = [any(i < right for i in draw) for draw in combinations(range(samples), k)]
            assert pass_at_k(samples, right, k) == pytest.approx(sum(draws) / len(draws), abs=1e-12)


def test_by_hand() -> None:
    assert pass_at_k(64, 0, 32) == 0.0
    assert pass_at_k(64, 33, 32) == 1.0
    assert pass_at_k(64, 1, 32) == 0.5
    assert pass_at_k(1000, 3, 1) == pytest.approx(0.003)


@pytest.mark.parametrize("numbers", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no pass@"):
        pass_at_k(*numbers)
