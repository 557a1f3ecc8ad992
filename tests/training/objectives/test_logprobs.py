from __future__ import annotations

import math

import pytest
import torch

from hpcjf.training.objectives.logprobs import logprobs_and_entropy, response_logprobs, token_logprobs


def test_log_probabilities_and_entropy_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])
    logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([[1, 0]]), 1.0)
    assert logprobs.tolist()[0] == pytest.approx([math.log(0.75), math.log(0.5)])
    assert entropy.tolist()[0] == pytest.approx([-0.75 * math.log(0.75) - 0.25 * math.log(0.25), math.log(2)])


def test_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[[0.0, 2.0 * math.log(3.0)]]])
    assert token_logprobs(logits, torch.tensor([[1]]), 2.0).item() == pytest.approx(math.log(0.75))


def test_impossible_tokens_add_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[[0.0, 0.0, -math.inf]]])
    assert logprobs_and_entropy(logits, torch.tensor([[0]]), 1.0)[1].item() == pytest.approx(math.log(2))


def test_responses_add_up_their_own_tokens() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, math.nan], [-4.0, math.nan, math.inf], [math.nan] * 3], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False], [False] * 3])
    assert response_logprobs(logprobs, mask).tolist() == [-3.0, -4.0, 0.0]
    means = response_logprobs(logprobs, mask, mean=True)
    assert means.tolist() == [-1.5, -4.0, 0.0]
    means.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0] * 3]
