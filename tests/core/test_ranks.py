from __future__ import annotations

import math

import numpy as np
import pytest

from hpcjf.core.ranks import ENOUGH, agreement, kendall, spearman


def test_hand_computed_rank_correlations() -> None:
    left, right = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(left, right) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert kendall(left, right) == pytest.approx((5 - 1) / 6)


def test_ties_as_tau_b_and_mean_ranks() -> None:
    left, right = np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall(left, right) == pytest.approx(5 / math.sqrt(5 * 6))
    ranks = np.array([1.5, 1.5, 3, 4])
    assert spearman(left, right) == pytest.approx(np.corrcoef(ranks, [1, 2, 3, 4])[0, 1])


def test_opposite_orders_and_constants() -> None:
    rising = np.arange(5.0)
    assert spearman(rising, -rising) == pytest.approx(-1)
    assert kendall(rising, -rising) == pytest.approx(-1)
    assert spearman(rising, np.ones(5)) is None
    assert kendall(rising, np.ones(5)) is None


def pair(n: int, correlation: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed).multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n)
    return drawn[:, 0], drawn[:, 1]


def test_scipy_agrees() -> None:
    from scipy.stats import kendalltau, spearmanr

    left, right = pair(30, 0.4, 0)
    left[3:6] = left[3]
    assert spearman(left, right) == pytest.approx(spearmanr(left, right).statistic)
    assert kendall(left, right) == pytest.approx(kendalltau(left, right).statistic)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = 6 / math.pi * math.asin(0.7 / 2)  # of a normal pair with correlation 0.7
    found = [agreement(*pair(20, 0.7, seed)).spearman for seed in range(40)]
    assert sum(each is not None and each.low <= truth <= each.high for each in found) >= 34
    assert all(each is not None and each.low <= each.value <= each.high for each in found)


def test_more_configurations_say_more() -> None:
    few, many = agreement(*pair(8, 0.8, 1)).spearman, agreement(*pair(80, 0.8, 1)).spearman
    assert few is not None
    assert many is not None
    assert many.high - many.low < 0.5 * (few.high - few.low)


def test_the_same_scores_give_the_same_interval() -> None:
    left, right = pair(9, 0.5, 2)
    assert agreement(left, right) == agreement(left, right)
    assert agreement(left, right, seed=1) != agreement(left, right)


def test_draws_that_are_all_ties_are_left_out() -> None:
    left, right = np.array([0.0, 0.0, 0.0, 0.0, 1.0]), np.arange(5.0)
    found = agreement(left, right).spearman
    assert found is not None
    assert math.isfinite(found.low)


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        (range(ENOUGH - 1), range(ENOUGH - 1), "unknown"),
        (range(ENOUGH), [1] * ENOUGH, "unknown"),
        (range(ENOUGH), range(ENOUGH), "high"),
        (range(6), [3, 1, 5, 0, 4, 2], "low"),
        (range(6), [1, 0, 3, 2, 5, 4], "unclear"),
        ([], [], "unknown"),
    ],
)
def test_the_verdict(left: list[int], right: list[int], verdict: str) -> None:
    assert agreement(np.array(left, dtype=float), np.array(right, dtype=float)).verdict == verdict
