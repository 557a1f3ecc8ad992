from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.training.objectives.returns import generalised_advantages, penalised, token_advantages, whitened

NAN, INF = math.nan, math.inf
KL = torch.tensor([[0.1, 0.2, 0.3], [0.4, NAN, NAN], [0.5, 0.6, NAN]])
MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
BETA = 0.5


def normalised(numbers: list[float]) -> list[float]:
    mean = sum(numbers) / len(numbers)
    std = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    return [(x - mean) / (std + 1e-4) for x in numbers]


def test_kl_of_a_whole_response_comes_off_its_reward() -> None:
    found = penalised([1.0, None, NAN], KL, MASK, BETA)
    assert found[:2] == [pytest.approx(1 - 0.5 * 0.6), None]
    assert math.isnan(found[2] or 0)


def test_rewards_to_come_by_hand() -> None:
    found = token_advantages([1.0, 2.0, -1.0], KL, MASK, BETA)
    first = [1 - 0.5 * (0.1 + 0.2 + 0.3), 1 - 0.5 * (0.2 + 0.3), 1 - 0.5 * 0.3]
    second, third = [2 - 0.5 * 0.4], [-1 - 0.5 * (0.5 + 0.6), -1 - 0.5 * 0.6]
    assert found.returns.tolist() == [pytest.approx(row + [0.0] * (3 - len(row))) for row in (first, second, third)]
    assert found.values[MASK].tolist() == pytest.approx(normalised(first + second + third))
    assert not found.values[~MASK].any()


def test_generalised_advantages_by_hand() -> None:
    rewards = torch.tensor([[0.0, 0.5, 2.0]], dtype=torch.float64)
    values = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    third = 2.0 - 3.0
    second = (0.5 + 3.0 - 2.0) + 0.9 * third
    first = (0.0 + 2.0 - 1.0) + 0.9 * second
    found = generalised_advantages(rewards, values, torch.ones(1, 3, dtype=torch.bool), 0.9)
    assert found.tolist()[0] == pytest.approx([first, second, third])


def test_tokens_left_out_in_between_are_stepped_over() -> None:
    rewards = torch.tensor([[0.0, NAN, 0.5, 2.0, NAN]], dtype=torch.float64)
    values = torch.tensor([[1.0, NAN, 2.0, 3.0, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False]])
    found = generalised_advantages(rewards, values, mask, 0.9)
    whole = generalised_advantages(rewards[mask].view(1, 3), values[mask].view(1, 3), mask[:, 2:4].new_ones(1, 3), 0.9)
    assert found[mask].tolist() == whole.flatten().tolist()
    assert found[~mask].tolist() == [0.0, 0.0]


def test_a_critic_takes_its_values_off_and_learns_the_returns() -> None:
    values = torch.tensor([[0.5, 0.4, 0.3], [0.2, NAN, NAN], [0.1, 0.0, NAN]])
    found = token_advantages([1.0, 2.0, -1.0], KL, MASK, BETA, values=values, decay=0.0)
    # λ = 0: one step ahead, so that the return is the reward of the token plus the next value
    expected = [-0.05 + 0.4, -0.1 + 0.3, -0.15 + 1, -0.2 + 2, -0.25 + 0.0, -0.3 - 1]
    assert found.returns[MASK].tolist() == pytest.approx(expected)
    own = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert found.values[MASK].tolist() == pytest.approx(normalised([r - v for r, v in zip(expected, own, strict=True)]))


@pytest.mark.parametrize("bad", [NAN, None, INF, -INF])
def test_a_response_without_a_finite_reward_counts_nowhere(bad: float | None) -> None:
    found = token_advantages([1.0, bad, -1.0], KL, MASK, BETA)
    rest = token_advantages([1.0, -1.0], KL[[0, 2]], MASK[[0, 2]], BETA)
    assert torch.equal(found.values[[0, 2]], rest.values)
    assert found.counted.tolist() == [[True] * 3, [False] * 3, [True, True, False]]
    assert not found.values[1].any()
    assert not found.returns[1].any()


@pytest.mark.parametrize("reward", [0.1, 0.95, 1 / 3, 1e9])
def test_equal_rewards_without_kl_give_exactly_zero(reward: float) -> None:
    found = token_advantages([reward] * 3, KL, MASK, 0.0)
    assert not found.values.any()


def test_the_rounding_of_a_kl_of_zero_is_not_blown_up() -> None:
    noise = torch.tensor([[0.0, 2.4e-7, 0.0], [-2.4e-7, NAN, NAN], [1.2e-7, 0.0, NAN]])
    assert float(token_advantages([1.0] * 3, noise, MASK, 0.05).values.abs().max()) < 1e-3


def test_no_tokens_at_all_give_zeros() -> None:
    found = token_advantages([1.0, None], torch.full((2, 3), NAN), torch.zeros(2, 3, dtype=torch.bool), BETA)
    assert not found.values.any()
    assert not found.returns.any()
    assert not found.counted.any()


def test_no_gradient_flows_through_advantages() -> None:
    kl = KL.nan_to_num(0.0).requires_grad_()
    values = torch.zeros(3, 3, requires_grad=True)
    found = token_advantages([1.0, 2.0, -1.0], kl, MASK, BETA, values=values)
    assert not found.values.requires_grad
    assert not found.returns.requires_grad


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_whitened_numbers_have_mean_zero_and_std_one_unless_they_are_equal(numbers: list[float]) -> None:
    values = torch.tensor([[*numbers, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True] * len(numbers) + [False]])
    found = whitened(values, mask)
    assert bool(found.isfinite().all())
    assert float(found[mask].mean()) == pytest.approx(0, abs=1e-6)
    std = float(values[mask].std())
    assert float(found[mask].std()) == pytest.approx(std / (std + 1e-4), abs=1e-6)
    if len(set(numbers)) == 1:
        assert not found.any()


@given(st.floats(0, 1), st.integers(1, 6))
def test_with_decay_one_the_advantage_is_what_the_value_missed(decay: float, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    rewards, values = torch.rand(2, 1, length, generator=generator, dtype=torch.float64)
    mask = torch.ones(1, length, dtype=torch.bool)
    to_come = rewards.flip(1).cumsum(1).flip(1)
    whole = generalised_advantages(rewards, values, mask, 1.0)
    assert whole.flatten().tolist() == pytest.approx((to_come - values).flatten().tolist())
    assert float(generalised_advantages(rewards, values, mask, decay)[0, -1]) == pytest.approx(
        float(rewards[0, -1] - values[0, -1])
    )
