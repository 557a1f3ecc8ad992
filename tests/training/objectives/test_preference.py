from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hpcjf.training.objectives.aggregate import response_scales, weighted_sum
from hpcjf.training.objectives.logprobs import response_logprobs
from hpcjf.training.objectives.preference import dpo_loss, kto_kl, kto_loss, simpo_loss
from hpcjf.training.objectives.supervised import sft_loss
from hpcjf.training.objectives.table import OBJECTIVES, Preference

CHOSEN, REJECTED = [-3.0, -2.0, -9.0], [-4.0, -1.0, -9.5]
REFERENCE_CHOSEN, REFERENCE_REJECTED = [-3.5, -2.0, -8.0], [-3.0, -1.5, -9.0]


def t(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def of(name: str) -> Preference:
    objective = OBJECTIVES[name]
    assert isinstance(objective, Preference)
    return objective


def test_dpo_by_hand() -> None:
    losses, margins = dpo_loss(t(CHOSEN), t(REJECTED), t(REFERENCE_CHOSEN), t(REFERENCE_REJECTED), of("dpo").beta)
    expected = [0.1 * (0.5 + 1.0), 0.1 * (0.0 - 0.5), 0.1 * (-1.0 + 0.5)]
    assert margins.tolist() == pytest.approx(expected)
    assert losses.tolist() == pytest.approx([-math.log(sigmoid(m)) for m in expected])


def test_simpo_by_hand() -> None:
    objective = of("simpo")
    losses, margins = simpo_loss(t([-0.5, -1.0]), t([-1.5, -0.8]), objective.beta, objective.margin)
    assert margins.tolist() == pytest.approx([2.0, -0.4])
    assert losses.tolist() == pytest.approx([-math.log(sigmoid(2.0 - 1.0)), -math.log(sigmoid(-0.4 - 1.0))])


def test_kto_by_hand() -> None:
    policy, reference = t([-3.0, -4.0, -5.0]), t([-3.5, -3.0, -5.0])
    desirable = torch.tensor([True, False, False])
    losses, rewards = kto_loss(policy, reference, desirable, 0.25, of("kto").beta, (1.0, 2.0))
    expected = [1 - sigmoid(0.1 * (0.5 - 0.25)), 2 - 2 * sigmoid(0.1 * (0.25 + 1.0)), 2 - 2 * sigmoid(0.1 * 0.25)]
    assert losses.tolist() == pytest.approx(expected)
    assert rewards.tolist() == pytest.approx([0.05, -0.1, 0.0])


def test_the_reference_point_of_kto_by_hand() -> None:
    assert kto_kl(t([-1.0, -2.0]), t([-1.5, -2.1])) == pytest.approx(0.3)
    assert kto_kl(t([-1.0, -2.0]), t([-0.5, -2.1])) == 0.0
    assert math.isnan(kto_kl(t([-1.0, math.nan]), t([-0.5, -2.1])))


def test_at_the_start_dpo_knows_nothing() -> None:
    losses, margins = dpo_loss(t(CHOSEN), t(REJECTED), t(CHOSEN), t(REJECTED), 0.1)
    assert losses.tolist() == pytest.approx([math.log(2)] * 3)
    assert margins.tolist() == [0.0] * 3


@pytest.mark.parametrize("name", ["dpo", "simpo", "kto"])
def test_gradients_are_those_of_the_value(name: str) -> None:
    chosen, rejected = t(CHOSEN).requires_grad_(), t(REJECTED).requires_grad_()

    def losses(chosen: Tensor, rejected: Tensor) -> Tensor:
        if name == "dpo":
            return dpo_loss(chosen, rejected, t(REFERENCE_CHOSEN), t(REFERENCE_REJECTED), 0.1)[0]
        if name == "simpo":
            return simpo_loss(chosen, rejected, 2.0, 1.0)[0]
        judged = torch.tensor([True] * 3 + [False] * 3)
        both, reference = torch.cat([chosen, rejected]), t(REFERENCE_CHOSEN + REFERENCE_REJECTED)
        return kto_loss(both, reference, judged, 0.3, 0.1, (1.0, 1.5))[0]

    assert torch.autograd.gradcheck(losses, (chosen, rejected))
    losses(chosen, rejected).sum().backward()
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert bool((chosen.grad < 0).all())
    assert bool((rejected.grad > 0).all())


def test_pairs_without_tokens_count_nowhere_and_leak_nothing() -> None:
    """The way a trainer takes the mean over pairs, with a pair whose rejected response has no token left."""
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, math.nan], [-0.5, math.nan], [math.nan] * 2], requires_grad=True)
    mask = torch.tensor([[True, True], [True, False], [True, False], [False, False]])
    totals = response_logprobs(logprobs, mask)
    chosen, rejected = totals.chunk(2)
    valid = mask.any(1)[:2] & mask.any(1)[2:]
    losses, _ = dpo_loss(chosen, rejected, torch.tensor([-3.0, -3.0]), torch.tensor([-1.0, 0.0]), 0.1)
    scales = response_scales(valid.long(), "token_mean")
    loss = weighted_sum(losses.unsqueeze(1), valid.unsqueeze(1), scales)
    assert float(loss.detach()) == pytest.approx(-math.log(sigmoid(0.1 * (0.0 - 0.5))))
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[1].tolist() == logprobs.grad[3].tolist() == [0.0, 0.0]
    assert logprobs.grad[0].tolist() == pytest.approx([-0.1 * sigmoid(0.05)] * 2)
    nothing = torch.zeros_like(valid)
    scales = response_scales(nothing.long(), "token_mean")
    assert float(weighted_sum(losses.detach().unsqueeze(1), nothing.unsqueeze(1), scales)) == 0


def test_sft_by_hand() -> None:
    logprobs = torch.tensor([[math.nan, -1.0, -2.0], [math.nan, -6.0, math.inf]], requires_grad=True)
    mask = torch.tensor([[False, True, True], [False, True, False]])
    loss = sft_loss(logprobs, mask, response_scales(mask.sum(1), "token_mean"))
    loss.backward()
    assert float(loss.detach()) == pytest.approx((1.0 + 2.0 + 6.0) / 3)
    assert logprobs.grad is not None
    assert logprobs.grad.flatten().tolist() == pytest.approx([0, -1 / 3, -1 / 3, 0, -1 / 3, 0])


def test_sft_without_response_tokens_is_zero() -> None:
    logprobs = torch.full((2, 3), math.nan, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    loss = sft_loss(logprobs, mask, response_scales(mask.sum(1), "token_mean"))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logprobs.grad is not None
    assert not logprobs.grad.any()


@given(st.floats(-300, 300), st.floats(-300, 300), st.floats(-50, 50))
def test_losses_of_any_responses_are_finite_and_positive(chosen: float, rejected: float, reference: float) -> None:
    a, b, c = t([chosen]), t([rejected]), t([reference])
    desirable = torch.tensor([True])
    for losses in (dpo_loss(a, b, c, c, 0.1), simpo_loss(a, b, 2.0, 1.0), kto_loss(a, c, desirable, 0.1, 0.1)):
        assert bool(losses[0].isfinite().all())
        assert bool((losses[0] >= 0).all())
