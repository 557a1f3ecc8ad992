"""Pairs from prompt groups, and their losses written down response by response."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hpcjf.study import AlgorithmSection
from hpcjf.training.learner import Learner
from hpcjf.training.objectives.chosen import sampled_objective
from hpcjf.training.objectives.table import Preference
from hpcjf.training.policy import Policy
from hpcjf.training.preferences import prefer
from hpcjf.training.rollout import Rollout, sample
from hpcjf.training.update import Tally

PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17], [9, 9, 9, 17], [5, 6, 17]]
REWARDS = [0.0, 1.0, 0.5, None, 0.25, 0.25, 0.25, 0.25, 2.0, math.nan, 1.0, math.inf, 0.0, 0.0, 1.0, 1.0]
PAIRS = [(0, 1, 0), (2, 8, 10), (3, 14, 12)]
"""Prompt, better and worse response; the second prompt's rewards are equal."""


@pytest.fixture
def rollout(policy: Policy) -> Rollout:
    noise = torch.Generator().manual_seed(1)
    return sample(policy, PROMPTS, group=4, max_new_tokens=6, temperature=1.0, generator=noise, batch=64)


def objective(name: str) -> Preference:
    found = sampled_objective(AlgorithmSection.model_validate({"objective": name, "preference_beta": 0.7}))
    assert isinstance(found, Preference)
    return found


def logprob(policy: Policy, rollout: Rollout, prompt: int, row: int, *, reference: bool = False) -> torch.Tensor:
    response = rollout.completion_ids[row][rollout.completion_mask[row]].tolist()
    ids = torch.tensor([PROMPTS[prompt] + response])

    def total(model: torch.nn.Module) -> torch.Tensor:
        chosen = model(ids, use_cache=False).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        return chosen[-len(response) :].sum()

    if reference:
        with policy.reference() as model:
            return total(model)
    return total(policy.model)


def textbook(policy: Policy, rollout: Rollout, name: str) -> torch.Tensor:
    def ratio(prompt: int, row: int) -> torch.Tensor:
        return logprob(policy, rollout, prompt, row) - logprob(policy, rollout, prompt, row, reference=True)

    def mean(prompt: int, row: int) -> torch.Tensor:
        return logprob(policy, rollout, prompt, row) / int(rollout.completion_mask[row].sum())

    losses = []
    following = {0: 2, 2: 3, 3: 0}
    with torch.no_grad():
        foreign = [ratio(following[prompt], row) for prompt, *rows in PAIRS for row in rows]
        shift = max(0.0, float(torch.stack(foreign).mean()))
    for prompt, better, worse in PAIRS:
        if name == "dpo":
            losses.append(-torch.log(torch.sigmoid(0.7 * (ratio(prompt, better) - ratio(prompt, worse)))))
        elif name == "simpo":
            losses.append(-torch.log(torch.sigmoid(0.7 * (mean(prompt, better) - mean(prompt, worse)) - 1.0)))
        else:
            good = 1 - torch.sigmoid(0.7 * (ratio(prompt, better) - shift))
            losses.append((good + 1 - torch.sigmoid(0.7 * (shift - ratio(prompt, worse)))) / 2)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("size", [64, 2, 1])
@pytest.mark.parametrize("name", ["dpo", "kto", "simpo"])
def test_loss_and_gradient_are_the_textbook_ones(policy: Policy, rollout: Rollout, name: str, size: int) -> None:
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=noise)
    expected = textbook(policy, rollout, name)
    expected.backward()
    wanted = [parameter.grad for parameter in policy.parameters()]
    policy.model.zero_grad()
    update, tally = prefer(Learner(policy), objective(name), rollout, REWARDS, size), Tally()
    loss = update.gradient([0, 1, 2, 3], tally, fresh=False, start=False)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    for parameter, gradient in zip(policy.parameters(), wanted, strict=True):
        assert gradient is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)
    counted = sum(int(rollout.completion_mask[row].sum()) for _, *rows in PAIRS for row in rows)
    assert tally.tokens == counted
    assert tally.kl > 0
    assert update.metrics["pairs"] == 3
    assert 0 <= update.metrics["margin_accuracy"] <= 1


def test_pairs_are_the_best_and_the_worst_finite_reward_of_a_group(policy: Policy, rollout: Rollout) -> None:
    update = prefer(Learner(policy), objective("dpo"), rollout, REWARDS, 64)
    assert list(update.places) == [0, 2, 3]
    rows = [row for _, *pair in PAIRS for row in pair]
    assert torch.equal(update.rollout.completion_ids, rollout.completion_ids[rows])
    assert update.gradient([1], Tally(), fresh=True, start=True) is None


def test_without_any_pair_nothing_is_measured(policy: Policy, rollout: Rollout) -> None:
    update = prefer(Learner(policy), objective("kto"), rollout, [None] * 16, 64)
    assert update.gradient([0, 1, 2, 3], Tally(), fresh=True, start=True) is None
    assert update.metrics["pairs"] == 0
    assert math.isnan(update.metrics["margin"])


def test_a_single_pair_has_no_foreign_responses(policy: Policy, rollout: Rollout) -> None:
    update, tally = prefer(Learner(policy), objective("kto"), rollout, REWARDS, 64), Tally()
    assert update.gradient([0], tally, fresh=True, start=True) == pytest.approx(0.5)
    assert tally.kl == 0


def test_margins_grow_when_the_pairs_are_learned(policy: Policy, rollout: Rollout) -> None:
    for name in ("dpo", "kto", "simpo"):
        policy.model.zero_grad()
        before = prefer(Learner(policy), objective(name), rollout, REWARDS, 64)
        before.gradient([0, 1, 2, 3], Tally(), fresh=True, start=False)
        old = [parameter.detach().clone() for parameter in policy.parameters()]
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter -= 0.02 * parameter.grad
        after = replace(before, margins=[])
        after.gradient([0, 1, 2, 3], Tally(), fresh=True, start=False)
        assert after.metrics["margin"] > before.metrics["margin"]
        with torch.no_grad():
            for parameter, weight in zip(policy.parameters(), old, strict=True):
                parameter.copy_(weight)
