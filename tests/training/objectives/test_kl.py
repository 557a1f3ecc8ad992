from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.table import Estimator

ALL: tuple[Estimator, ...] = ("k1", "k2", "k3")
P, Q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
EVERYWHERE = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [0.5, -1.0]),
        ("k2", [0.125, 0.5]),
        ("k3", [math.exp(-0.5) + 0.5 - 1, math.exp(1.0) - 1.0 - 1]),
    ],
)
def test_estimates_by_hand(estimator: Estimator, expected: list[float]) -> None:
    policy, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]])
    found = kl_estimate(policy, reference, torch.ones(1, 2, dtype=torch.bool), estimator)
    assert found.tolist()[0] == pytest.approx(expected)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_average_to_the_true_divergence(estimator: Estimator) -> None:
    expected = sum(p * math.log(p / q) for p, q in zip(P.tolist(), Q.tolist(), strict=True))
    found = (P * kl_estimate(P.log(), Q.log(), EVERYWHERE, estimator)).sum()
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_as_a_loss_k2_pulls_as_the_divergence_does_and_k1_nowhere() -> None:
    def gradient(loss: torch.Tensor, logits: torch.Tensor) -> list[float]:
        (found,) = torch.autograd.grad(loss, logits)
        return found.tolist()

    logits = P.double().log().requires_grad_()
    policy, reference = logits.log_softmax(-1), Q.double().log()
    true = gradient((policy.exp() * (policy - reference)).sum(), logits)
    estimates = {}
    for estimator in ("k1", "k2"):
        policy = logits.log_softmax(-1)
        samples = kl_estimate(policy, reference, EVERYWHERE, estimator)
        estimates[estimator] = gradient((P.double() * samples).sum(), logits)
    assert estimates["k2"] == pytest.approx(true, abs=1e-7)
    assert estimates["k1"] == pytest.approx([0.0] * 3, abs=1e-7)
    assert max(map(abs, true)) > 0.05


@pytest.mark.parametrize("estimator", ALL)
def test_equal_policies_are_exactly_zero_apart_and_masked_tokens_leak_nothing(estimator: Estimator) -> None:
    policy = torch.tensor([[-1.0, -2.7, math.nan]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    found = kl_estimate(policy, torch.tensor([[-1.0, -2.7, math.inf]]), mask, estimator)
    assert found.tolist() == [[0.0] * 3]
    found.sum().backward()
    assert policy.grad is not None
    assert policy.grad[0, 2] == 0
    assert bool(policy.grad.isfinite().all())


@given(st.floats(-8, 0), st.floats(-3, 3))
def test_k3_is_not_negative_but_for_rounding(policy: float, difference: float) -> None:
    logprobs = torch.tensor([policy])
    assert float(kl_estimate(logprobs, logprobs + difference, torch.ones(1, dtype=torch.bool), "k3")) >= -2e-7
