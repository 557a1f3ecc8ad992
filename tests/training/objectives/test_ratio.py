from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.training.objectives.ratio import clipped_surrogate, importance_ratio
from hpcjf.training.objectives.table import RatioLevel

LEVELS: tuple[RatioLevel, ...] = ("token", "sequence_mean", "sequence")
RATIOS = torch.tensor([[1.0, 1.5, 0.5], [1.0, 1.5, 0.5]])
GAINS = torch.tensor([[2.0], [-1.0]])


def test_clipped_surrogate_by_hand() -> None:
    loss, clipped = clipped_surrogate(RATIOS, GAINS, 0.2, 0.2)
    # A > 0: gains are capped at 1.2, losses are not; A < 0: the mirror image
    assert loss.tolist() == [pytest.approx([-2.0, -2.4, -1.0]), pytest.approx([1.0, 1.5, 0.8])]
    assert clipped.tolist() == [[False, True, False], [False, False, True]]


def test_clip_higher_leaves_the_lower_side_alone() -> None:
    loss, clipped = clipped_surrogate(RATIOS, GAINS, 0.2, 0.6)
    assert loss.tolist() == [pytest.approx([-2.0, -3.0, -1.0]), pytest.approx([1.0, 1.5, 0.8])]
    assert clipped.tolist() == [[False, False, False], [False, False, True]]


def test_dual_clip_bounds_the_loss_of_negative_advantages_alone() -> None:
    ratios = torch.tensor([[5.0], [5.0], [2.0]])
    loss, clipped = clipped_surrogate(ratios, torch.tensor([[1.0], [-1.0], [-1.0]]), 0.2, 0.2, dual=3.0)
    assert loss.flatten().tolist() == pytest.approx([-1.2, 3.0, 2.0])
    assert clipped.flatten().tolist() == [True, True, False]


@pytest.mark.parametrize("dual", [None, 1.4])
def test_clipped_tokens_have_no_gradient(dual: float | None) -> None:
    ratios = RATIOS.clone().requires_grad_()
    loss, clipped = clipped_surrogate(ratios, GAINS, 0.2, 0.2, dual)
    loss.sum().backward()
    assert ratios.grad is not None
    assert torch.equal(ratios.grad == 0, clipped)
    assert clipped.sum() == (2 if dual is None else 3)
    assert ratios.grad[0, 0] == -2.0


def test_without_advantage_nothing_is_clipped() -> None:
    loss, clipped = clipped_surrogate(torch.tensor([[5.0, 0.1]]), torch.zeros(1, 1), 0.2, 0.2, 3.0)
    assert loss.abs().sum() == 0
    assert not clipped.any()


def test_ratios_of_tokens_and_of_responses_by_hand() -> None:
    logprobs = torch.tensor([[2.0, 3.0, 0.5], [0.5, math.nan, math.nan]]).log()
    old = torch.tensor([[1.0, 1.0, 1.0], [1.0, math.nan, 1.0]]).log()
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert importance_ratio(logprobs, old, mask).tolist() == [pytest.approx([2.0, 3.0, 0.5]), [0.5, 1.0, 1.0]]
    assert importance_ratio(logprobs, old, mask, "sequence").flatten().tolist() == pytest.approx([3.0, 0.5])
    found = importance_ratio(logprobs, old, mask, "sequence_mean").flatten().tolist()
    assert found == pytest.approx([3.0 ** (1 / 3), 0.5])


@pytest.mark.parametrize("level", LEVELS)
def test_on_policy_the_ratio_is_exactly_one(level: RatioLevel) -> None:
    logprobs = -torch.rand(3, 5) * 9
    mask = torch.arange(5) < torch.tensor([[5], [2], [0]])
    assert bool((importance_ratio(logprobs, logprobs, mask, level) == 1).all())


@pytest.mark.parametrize("level", LEVELS)
def test_a_ratio_beyond_all_bounds_is_still_nothing_without_advantage(level: RatioLevel) -> None:
    logprobs = torch.tensor([[0.0, 0.0]], requires_grad=True)
    ratio = importance_ratio(logprobs, torch.tensor([[-900.0, -1.0]]), torch.ones(1, 2, dtype=torch.bool), level)
    loss, _ = clipped_surrogate(ratio, torch.zeros(1, 1), 0.2, 0.2)
    loss.sum().backward()
    assert not loss.detach().any()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, 0.0]]


@given(st.floats(0.01, 10), st.floats(-5, 5), st.floats(0.01, 0.9), st.floats(0.01, 2))
def test_clipping_never_makes_the_objective_look_better(ratio: float, gain: float, low: float, high: float) -> None:
    loss, clipped = clipped_surrogate(torch.tensor([[ratio]]), torch.tensor([[gain]]), low, high)
    assert float(loss) >= -ratio * gain - 1e-5
    assert bool(clipped) or float(loss) == pytest.approx(-ratio * gain, rel=1e-5, abs=1e-6)
