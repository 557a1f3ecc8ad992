from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hpcjf.study import AlgorithmSection
from hpcjf.training.learner import Learner
from hpcjf.training.objectives.advantages import Advantages, group_advantages
from hpcjf.training.objectives.chosen import policy_gradient
from hpcjf.training.pieces import pieces
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout, sample
from hpcjf.training.targets import Plan, Targets, make_targets
from hpcjf.training.update import PolicyUpdate, Tally

PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17], [9, 9, 9, 17]]
REWARDS = [0.0, 1.0, 0.5, None, 0.25, 1.0, 0.0, 0.0, 2.0, 1.0, 1.0, float("nan")]
OBJECTIVE = policy_gradient(AlgorithmSection(rollouts=4, clip_range=0.1, kl_coef=0.3))


@pytest.fixture
def rollout(policy: Policy) -> Rollout:
    return sample(
        replace(policy, eos_ids=(2, 5, 11)),
        PROMPTS,
        group=4,
        max_new_tokens=9,
        temperature=1.0,
        generator=torch.Generator().manual_seed(1),
        batch=64,
    )


@pytest.fixture
def advantages() -> Advantages:
    return group_advantages(REWARDS, 4)


@pytest.mark.parametrize(("size", "shapes"), [(64, [(3, 12)]), (9, [(2, 8), (1, 4)]), (4, [(1, 4)] * 3)])
def test_pieces_hold_as_many_whole_groups_as_fit(rollout: Rollout, size: int, shapes: list[tuple[int, int]]) -> None:
    found = list(pieces(rollout, [0, 1, 2], size))
    assert [(len(piece.prompt), len(piece.ids)) for piece in found] == shapes


@pytest.mark.parametrize(("size", "rows"), [(3, [3, 1]), (1, [1] * 4)])
def test_larger_groups_are_cut(rollout: Rollout, size: int, rows: list[int]) -> None:
    found = list(pieces(rollout, [1, 2], size))
    assert [len(piece.ids) for piece in found] == rows * 2
    assert all(len(piece.prompt) == 1 for piece in found)


@pytest.mark.parametrize("size", [64, 8, 4, 3, 1])
def test_pieces_lose_no_token_and_count_none_without_a_finite_reward(
    policy: Policy, rollout: Rollout, advantages: Advantages, size: int
) -> None:
    completions, prompts, gains, counted = [], [], [], []
    targets = targets_of(policy, rollout, [[0, 1, 2]], size)
    for piece in pieces(rollout, [0, 1, 2], size):
        completions += [ids[mask].tolist() for ids, mask in zip(piece.ids, piece.attended, strict=True)]
        copies = len(piece.ids) // len(piece.prompt)
        own = [ids[mask].tolist() for ids, mask in zip(piece.prompt, piece.prompt_mask, strict=True)]
        prompts += [prompt for prompt in own for _ in range(copies)]
        gains += piece.of(targets.gains).tolist()
        counted += [int(row.sum()) for row in piece.of(targets.counted)]
        assert bool(piece.attended.any(0).all())
        assert bool(piece.prompt_mask.any(0).all())
    whole = zip(rollout.completion_ids, rollout.completion_mask, strict=True)
    assert completions == [ids[mask].tolist() for ids, mask in whole]
    assert prompts == [prompt for prompt in PROMPTS for _ in range(4)]
    assert gains == pytest.approx(advantages.values.flatten().tolist())
    assert counted == [0 if i in (3, 11) else len(row) for i, row in enumerate(completions)]


def targets_of(policy: Policy, rollout: Rollout, minibatches: list[list[int]], size: int) -> Targets:
    plan = Plan(minibatches, size, max_length=9, start=False, level=None)
    return make_targets(Learner(policy), OBJECTIVE, rollout, REWARDS, plan)


def textbook_loss(policy: Policy, rollout: Rollout, advantages: Advantages, rows: range) -> torch.Tensor:
    """The loss written down row by row, without padding, cache or batches; old log-probabilities from sampling."""
    total, completions = torch.zeros(()), 0
    for row in rows:
        if not advantages.valid.flatten()[row]:
            continue
        mask = rollout.completion_mask[row]
        completion, old = rollout.completion_ids[row][mask], rollout.logprobs[row][mask]
        prompt = PROMPTS[row // 4]
        ids = torch.tensor([[*prompt, *completion.tolist()]])

        def logprobs(model: torch.nn.Module, ids: torch.Tensor = ids, start: int = len(prompt) - 1) -> torch.Tensor:
            chosen = model(ids, use_cache=False).logits[0, start:-1].log_softmax(-1)
            return chosen.gather(1, ids[0, start + 1 :].unsqueeze(1)).squeeze(1)

        new = logprobs(policy.model)
        with policy.reference() as model:
            reference = logprobs(model)
        difference = reference - new
        ratio, gain = (new - old).exp(), float(advantages.values.flatten()[row])
        surrogate = torch.minimum(ratio * gain, ratio.clamp(0.9, 1.1) * gain)
        total = total + (-surrogate + 0.3 * (difference.exp() - difference - 1)).mean()
        completions += 1
    return total / completions


@pytest.mark.parametrize("size", [64, 4, 3])
def test_loss_and_gradient_are_the_textbook_ones(
    policy: Policy, rollout: Rollout, advantages: Advantages, size: int
) -> None:
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():  # off the reference and off the sampling policy
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=noise)
    expected = textbook_loss(policy, rollout, advantages, range(4, 12))
    expected.backward()
    wanted = [parameter.grad for parameter in policy.parameters()]
    policy.model.zero_grad()
    tally = Tally()
    targets = targets_of(policy, rollout, [[0], [1, 2]], size)
    update = PolicyUpdate(Learner(policy), OBJECTIVE, rollout, targets, size)
    loss = update.gradient([1, 2], tally, fresh=False, start=False)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    for parameter, gradient in zip(policy.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        assert gradient is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)
    assert tally.tokens == int(rollout.completion_mask[4:11].sum())
    assert 0 < tally.clipped < tally.tokens
