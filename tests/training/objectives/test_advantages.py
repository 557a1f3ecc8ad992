from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.errors import TrainingError
from hpcjf.training.objectives.advantages import EPSILON, group_advantages, groups_with_signal
from hpcjf.training.objectives.table import Baseline

NAN, INF = float("nan"), float("inf")
ALL: tuple[Baseline, ...] = ("group_std", "group_mean", "leave_one_out")


def test_two_groups_by_hand() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.0], 4)
    low = 0.5 / (math.sqrt(1 / 3) + EPSILON)
    step = 1 / (math.sqrt(20 / 3) + EPSILON)
    expected = [low, -low, -low, low, -3 * step, -step, step, 3 * step]
    assert found.values.flatten().tolist() == pytest.approx(expected)
    assert found.valid.all()
    assert not found.zero_variance.any()


def test_the_mean_alone_by_hand() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 1.0, 2.0, 4.0, 6.0, None], 4, "group_mean")
    assert found.values.flatten().tolist() == pytest.approx([0.5, -0.5, -0.5, 0.5, -2.0, 0.0, 2.0, 0.0])


def test_leave_one_out_by_hand() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 1.0, 2.0, 4.0, 9.0, None], 4, "leave_one_out")
    first = [1 - 1 / 3, 0 - 2 / 3, 0 - 2 / 3, 1 - 1 / 3]
    second = [2 - (4 + 9) / 2, 4 - (2 + 9) / 2, 9 - (2 + 4) / 2, 0.0]
    assert found.values.flatten().tolist() == pytest.approx(first + second)


@pytest.mark.parametrize("baseline", ALL)
@pytest.mark.parametrize("reward", [0.1, 0.95, 1 / 3, 1e-9, 1e9])
def test_equal_rewards_give_exactly_zero_despite_float_noise(reward: float, baseline: Baseline) -> None:
    found = group_advantages([reward] * 7, 7, baseline)
    assert found.values.tolist() == [[0.0] * 7]
    assert found.zero_variance.tolist() == [True]


def test_nearly_equal_rewards_do_not_explode() -> None:
    found = group_advantages([0.95, 0.95, 0.95, 0.95 + 1e-12], 4)
    assert not found.zero_variance.any()
    assert float(found.values.abs().max()) < 1e-6


@pytest.mark.parametrize("bad", [NAN, None, INF, -INF])
def test_a_reward_that_is_not_finite_counts_in_neither_mean_nor_std(bad: float | None) -> None:
    found = group_advantages([1.0, bad, 3.0], 3)
    unit = 1 / (math.sqrt(2) + EPSILON)
    assert found.values.tolist()[0] == pytest.approx([-unit, 0.0, unit])
    assert found.valid.tolist() == [[True, False, True]]


def test_groups_with_fewer_than_two_finite_rewards_have_no_signal() -> None:
    found = group_advantages([NAN, None, INF, NAN, 5.0, None], 3)
    assert found.values.tolist() == [[0.0] * 3] * 2
    assert found.zero_variance.tolist() == [True, True]
    assert found.valid.sum() == 1


def test_a_bad_reward_leaves_the_other_groups_alone() -> None:
    alone = group_advantages([1.0, 2.0, 4.0], 3).values
    beside = group_advantages([NAN, INF, 0.0, 1.0, 2.0, 4.0], 3).values
    assert torch.equal(beside[1:], alone)


@pytest.mark.parametrize("baseline", ALL)
def test_a_group_of_one_is_refused(baseline: Baseline) -> None:
    with pytest.raises(TrainingError, match="at least two"):
        group_advantages([1.0, 2.0], 1, baseline)


def test_dynamic_sampling_keeps_the_groups_whose_rewards_differ() -> None:
    rewards = [0.95] * 3 + [0.95, 0.95, 0.95 + 1e-12] + [None, 1.0, NAN] + [0.0, INF, 1.0]
    assert groups_with_signal(rewards, 3) == [1, 3]


REWARDS = st.lists(st.none() | st.floats(-1e6, 1e6) | st.just(NAN) | st.just(INF), min_size=4, max_size=4)


@given(REWARDS, st.sampled_from(ALL))
def test_advantages_are_finite_and_centred(rewards: list[float | None], baseline: Baseline) -> None:
    found = group_advantages(rewards, 4, baseline)
    assert bool(found.values.isfinite().all())
    assert abs(float(found.values.sum())) < 1e-6
    assert not found.values[~found.valid].any()
    assert baseline != "group_std" or float(found.values.abs().max()) <= 1.5


@given(REWARDS)
def test_the_baselines_differ_by_a_factor_within_each_group(rewards: list[float | None]) -> None:
    std, mean, others = (group_advantages(rewards, 4, baseline) for baseline in ALL)
    n = int(mean.valid.sum())
    if n > 1:
        assert others.values.tolist()[0] == pytest.approx((mean.values * n / (n - 1)).tolist()[0], abs=1e-6)
    assert bool((std.values.sign() == mean.values.sign()).all())
