from __future__ import annotations

import math

import pytest
import torch

from hpcjf.training.losses import kl_k3, policy_loss, sequence_mean, token_logprobs


def ratios(values: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities whose importance ratio to the second result is ``values``."""
    return torch.tensor(values).log().requires_grad_(), torch.zeros(len(values), len(values[0]))


def test_clipped_loss_by_hand() -> None:
    logprobs, old = ratios([[1.0, 1.5, 0.5], [1.0, 1.5, 0.5]])
    loss, clipped = policy_loss(logprobs, old, torch.tensor([2.0, -1.0]), 0.2)
    # A > 0: gains are capped at 1.2, losses are not; A < 0: the mirror image
    assert loss.detach().tolist() == [pytest.approx([-2.0, -2.4, -1.0]), pytest.approx([1.0, 1.5, 0.8])]
    assert clipped.tolist() == [[False, True, False], [False, False, True]]


def test_clipped_tokens_have_no_gradient() -> None:
    logprobs, old = ratios([[1.0, 1.5, 0.5], [1.0, 1.5, 0.5]])
    loss, clipped = policy_loss(logprobs, old, torch.tensor([2.0, -1.0]), 0.2)
    loss.sum().backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad == 0, clipped)
    assert logprobs.grad[0, 0] == -2.0


def test_without_advantage_nothing_is_clipped() -> None:
    logprobs, old = ratios([[5.0, 0.1]])
    loss, clipped = policy_loss(logprobs, old, torch.zeros(1), 0.2)
    assert loss.abs().sum() == 0
    assert not clipped.any()


def test_k3_by_hand_and_zero_with_zero_gradient_at_equality() -> None:
    policy = torch.tensor([-1.0, -2.0], requires_grad=True)
    assert kl_k3(policy, torch.tensor([-1.5, -1.0])).tolist() == pytest.approx(
        [math.exp(-0.5) + 0.5 - 1, math.exp(1.0) - 1.0 - 1]
    )
    same = kl_k3(policy, policy.detach())
    same.sum().backward()
    assert same.tolist() == [0.0, 0.0]
    assert policy.grad is not None
    assert policy.grad.tolist() == [0.0, 0.0]


def test_k3_averages_to_the_true_divergence() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    expected = float((p * (p / q).log()).sum())
    assert float((p * kl_k3(p.log(), q.log())).sum()) == pytest.approx(expected, abs=1e-6)


def test_sequence_mean_weighs_completions_alike() -> None:
    values = torch.tensor([[1.0, 3.0, float("nan")], [5.0, float("inf"), 7.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    assert float(sequence_mean(values, mask)) == 2.0 + 5.0


def test_everything_masked_is_zero() -> None:
    assert float(sequence_mean(torch.full((2, 3), float("nan")), torch.zeros(2, 3, dtype=torch.bool))) == 0.0


def test_log_probabilities_and_entropy_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])
    logprobs, entropy = token_logprobs(logits, torch.tensor([[1, 0]]), 1.0)
    assert logprobs.tolist()[0] == pytest.approx([math.log(0.75), math.log(0.5)])
    assert entropy.tolist()[0] == pytest.approx([-0.75 * math.log(0.75) - 0.25 * math.log(0.25), math.log(2)])


def test_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[[0.0, 2.0 * math.log(3.0)]]])
    assert token_logprobs(logits, torch.tensor([[1]]), 2.0)[0].item() == pytest.approx(math.log(0.75))


def test_impossible_tokens_add_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[[0.0, 0.0, -math.inf]]])
    assert token_logprobs(logits, torch.tensor([[0]]), 1.0)[1].item() == pytest.approx(math.log(2))
