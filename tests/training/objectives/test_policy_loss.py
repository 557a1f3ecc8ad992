"""The losses of all policy-gradient objectives on one batch, against their formulas in plain Python."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hpcjf.training.objectives.advantages import group_advantages
from hpcjf.training.objectives.aggregate import masked_mean, response_scales
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.policy_loss import PolicyLoss, policy_loss
from hpcjf.training.objectives.returns import penalised, token_advantages
from hpcjf.training.objectives.table import OBJECTIVES, Kl, PolicyGradient
from hpcjf.training.objectives.value import value_loss

NEW = [[-0.5, -1.0, -0.2], [-2.0], [-0.7, -0.4], [-1.5, -0.1, -0.9]]
"""Log-probabilities of two groups of two responses."""
OLD = [[-0.9, -1.0, -0.1], [-1.6], [-0.8, -0.8], [-1.5, -0.3, -0.9]]
REFERENCE = [[-0.6, -1.2, -0.3], [-1.9], [-0.7, -0.1], [-1.1, -0.1, -1.0]]
REWARDS = [1.0, 0.0, 2.0, 5.0]
LIMIT = 8
NAMES = [name for name, objective in OBJECTIVES.items() if isinstance(objective, PolicyGradient)]


def padded(rows: list[list[float]], filler: float = math.nan) -> Tensor:
    return torch.tensor([row + [filler] * (3 - len(row)) for row in rows], dtype=torch.float64)


MASK = ~padded(NEW).isnan()


def of(name: str) -> PolicyGradient:
    objective = OBJECTIVES[name]
    assert isinstance(objective, PolicyGradient)
    return objective


def advantages_of(objective: PolicyGradient, mask: Tensor = MASK) -> Tensor:
    """``[B]`` or ``[B, T]``, as a trainer would make them; for a critic its values are 0.1, 0.2, 0.3 from the left."""
    old, reference = padded(OLD), padded(REFERENCE)
    kl = kl_estimate(old, reference, mask, objective.kl.estimator)
    beta = objective.kl.coefficient if objective.kl.place == "reward" else 0.0
    if objective.advantage != "returns":
        return group_advantages(penalised(REWARDS, kl, mask, beta), 2, objective.advantage).values.flatten()
    if objective.critic is None:
        return token_advantages(REWARDS, kl, mask, beta).values
    values = torch.tensor([0.1, 0.2, 0.3]).expand(4, 3)
    return token_advantages(REWARDS, kl, mask, beta, values=values, decay=objective.critic.decay).values


def loss_of(objective: PolicyGradient, new: Tensor, *, filler: float = math.nan, mask: Tensor = MASK) -> PolicyLoss:
    advantages = advantages_of(objective)
    if advantages.dim() == 2:
        advantages = torch.where(mask, advantages, filler)
    scales = response_scales(mask.sum(1), objective.aggregation, max_length=LIMIT)
    old, reference = padded(OLD, filler), padded(REFERENCE, filler)
    return policy_loss(objective, new, old, advantages, mask, scales, reference=reference)


def surrogate(ratio: float, gain: float, low: float = 0.2, high: float = 0.2) -> float:
    return -min(ratio * gain, min(max(ratio, 1 - low), 1 + high) * gain)


def per_token(gains: list[float], low: float = 0.2, high: float = 0.2, beta: float = 0.0) -> list[list[float]]:
    """Surrogate + β k3 of every token, for one gain a response."""
    rows = []
    for new, old, reference, gain in zip(NEW, OLD, REFERENCE, gains, strict=True):
        row = []
        for n, o, r in zip(new, old, reference, strict=True):
            row.append(surrogate(math.exp(n - o), gain, low, high) + beta * (math.exp(r - n) - (r - n) - 1))
        rows.append(row)
    return rows


HALF, STEP = 0.5, 1.5
STANDARD = [
    HALF / (math.sqrt(0.5) + 1e-4),
    -HALF / (math.sqrt(0.5) + 1e-4),
    -STEP / (math.sqrt(4.5) + 1e-4),
    STEP / (math.sqrt(4.5) + 1e-4),
]
"""(r - mean) / (std + 1e-4) in the groups (1, 0) and (2, 5)."""


def sequence_mean(rows: list[list[float]]) -> float:
    return sum(sum(row) / len(row) for row in rows) / len(rows)


def test_grpo_by_hand() -> None:
    found = loss_of(of("grpo"), padded(NEW))
    assert float(found.total) == pytest.approx(sequence_mean(per_token(STANDARD, beta=0.001)))
    # ratios: e^0.4 1 e^-0.1 | e^-0.4 | e^0.1 e^0.4 | 1 e^0.2 1 with gains + - - +
    assert found.clipped.tolist() == [[True, False, False], [True, False, False], [False] * 3, [False, True, False]]
    assert masked_mean(found.clipped.double(), MASK) == pytest.approx(3 / 9)


def test_dr_grpo_by_hand() -> None:
    rows = per_token([0.5, -0.5, -1.5, 1.5])
    assert float(loss_of(of("dr_grpo"), padded(NEW)).total) == pytest.approx(sum(map(sum, rows)) / (4 * LIMIT))


def test_dapo_by_hand() -> None:
    found = loss_of(of("dapo"), padded(NEW))
    assert float(found.total) == pytest.approx(sum(map(sum, per_token(STANDARD, high=0.28))) / 9)
    assert found.clipped[3].tolist() == [False, False, False]  # e^0.2 is within 1.28


def test_gspo_by_hand() -> None:
    losses = []
    for new, old, gain in zip(NEW, OLD, STANDARD, strict=True):
        ratio = math.exp(sum(n - o for n, o in zip(new, old, strict=True)) / len(new))
        losses.append(surrogate(ratio, gain, 3e-4, 4e-4))
    assert float(loss_of(of("gspo"), padded(NEW)).total) == pytest.approx(sum(losses) / 4)


def test_rloo_by_hand() -> None:
    shaped = []
    for reward, old, reference in zip(REWARDS, OLD, REFERENCE, strict=True):
        shaped.append(reward - 0.05 * sum(o - r for o, r in zip(old, reference, strict=True)))
    gains = [shaped[0] - shaped[1], shaped[1] - shaped[0], shaped[2] - shaped[3], shaped[3] - shaped[2]]
    losses = []
    for new, old, gain in zip(NEW, OLD, gains, strict=True):
        losses.append(surrogate(math.exp(sum(n - o for n, o in zip(new, old, strict=True))), gain))
    assert float(loss_of(of("rloo"), padded(NEW)).total) == pytest.approx(sum(losses) / 4)


def normalised(rows: list[list[float]]) -> list[list[float]]:
    flat = [x for row in rows for x in row]
    mean = sum(flat) / len(flat)
    std = math.sqrt(sum((x - mean) ** 2 for x in flat) / (len(flat) - 1)) + 1e-4
    return [[(x - mean) / std for x in row] for row in rows]


def token_rewards(beta: float) -> list[list[float]]:
    rows = [[-beta * (o - r) for o, r in zip(old, ref, strict=True)] for old, ref in zip(OLD, REFERENCE, strict=True)]
    for row, reward in zip(rows, REWARDS, strict=True):
        row[-1] += reward
    return rows


def token_mean(gains: list[list[float]]) -> float:
    losses = [
        surrogate(math.exp(n - o), gain)
        for new, old, row in zip(NEW, OLD, gains, strict=True)
        for n, o, gain in zip(new, old, row, strict=True)
    ]
    return sum(losses) / len(losses)


def test_reinforce_pp_by_hand() -> None:
    returns = [[sum(row[t:]) for t in range(len(row))] for row in token_rewards(0.01)]
    found = loss_of(of("reinforce_pp"), padded(NEW))
    assert float(found.total) == pytest.approx(token_mean(normalised(returns)))


def test_ppo_by_hand() -> None:
    values, gains = [0.1, 0.2, 0.3], []
    for row in token_rewards(0.05):
        errors = [r + (values[t + 1] if t + 1 < len(row) else 0.0) - values[t] for t, r in enumerate(row)]
        gains.append([sum(0.95 ** (k - t) * errors[k] for k in range(t, len(row))) for t in range(len(row))])
    objective = of("ppo")
    assert float(loss_of(objective, padded(NEW)).total) == pytest.approx(token_mean(normalised(gains)))
    assert objective.critic is not None
    targets = [[gain + values[t] for t, gain in enumerate(row)] for row in gains]
    old = torch.tensor(values).expand(4, 3).double()
    critic = masked_mean(value_loss(old + 0.5, old, padded(targets), MASK, objective.critic.clip), MASK)
    squares = [
        max((values[t] + 0.5 - target) ** 2, (values[t] + 0.2 - target) ** 2) / 2
        for row in targets
        for t, target in enumerate(row)
    ]
    assert critic == pytest.approx(sum(squares) / len(squares))


@pytest.mark.parametrize("name", NAMES)
def test_masked_positions_may_hold_anything(name: str) -> None:
    results = []
    for filler in (math.nan, math.inf, -3.0):
        new = padded(NEW, filler).requires_grad_()
        found = loss_of(of(name), new, filler=filler)
        found.total.backward()
        assert new.grad is not None
        assert bool(new.grad.isfinite().all())
        assert not new.grad[~MASK].any()
        assert not found.clipped[~MASK].any()
        results.append((float(found.total.detach()), new.grad.tolist()))
    assert results[0] == results[1] == results[2]
    assert math.isfinite(results[0][0])


@pytest.mark.parametrize("name", NAMES)
def test_everything_masked_is_a_loss_of_zero_without_gradient(name: str) -> None:
    new = padded(NEW).requires_grad_()
    nothing = torch.zeros_like(MASK)
    found = loss_of(of(name), new, mask=nothing)
    found.total.backward()
    assert float(found.total.detach()) == 0
    assert new.grad is not None
    assert new.grad.tolist() == [[0.0] * 3] * 4
    assert math.isnan(masked_mean(found.clipped.double(), nothing))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_value(name: str) -> None:
    objective = of(name)

    def total(new: Tensor) -> Tensor:
        return loss_of(objective, new).total

    assert torch.autograd.gradcheck(total, padded(NEW, 0.0).requires_grad_())


@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_a_minibatch_add_up_to_it(name: str) -> None:
    objective, new = of(name), padded(NEW)
    advantages = advantages_of(objective)
    scales = response_scales(MASK.sum(1), objective.aggregation, max_length=LIMIT)
    parts = [
        policy_loss(
            objective,
            new[i : i + 1],
            padded(OLD)[i : i + 1],
            advantages[i : i + 1],
            MASK[i : i + 1],
            scales[i : i + 1],
            reference=padded(REFERENCE)[i : i + 1],
        ).total
        for i in range(4)
    ]
    assert float(sum(parts)) == pytest.approx(float(loss_of(objective, new).total))


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    new = padded(OLD, 0.0).requires_grad_()
    loss_of(replace(of("grpo"), kl=Kl("loss", 0.0, "k3")), new).total.backward()
    assert new.grad is not None
    for row, gain, found in zip(OLD, STANDARD, new.grad.tolist(), strict=True):
        assert found == pytest.approx([-gain / (4 * len(row))] * len(row) + [0.0] * (3 - len(row)))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_of_the_loss_uses_its_estimator_and_coefficient(estimator: str) -> None:
    objective = replace(of("grpo"), kl=Kl("loss", 0.3, estimator))  # type: ignore[arg-type]
    without = replace(objective, kl=Kl("loss", 0.0, "k3"))
    formula = {
        "k1": lambda d: -d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: math.exp(d) - d - 1,
    }[estimator]
    kl = [[formula(r - n) for r, n in zip(ref, new, strict=True)] for ref, new in zip(REFERENCE, NEW, strict=True)]
    difference = loss_of(objective, padded(NEW)).total - loss_of(without, padded(NEW)).total
    assert float(difference) == pytest.approx(0.3 * sequence_mean(kl))


def test_a_kl_in_the_reward_leaves_the_loss_alone() -> None:
    objective = of("reinforce_pp")
    other = replace(objective, kl=Kl("reward", 9.0, "k1"))
    arguments = (padded(NEW), padded(OLD), advantages_of(objective), MASK, response_scales(MASK.sum(1), "token_mean"))
    losses = [policy_loss(one, *arguments, reference=padded(REFERENCE)).total for one in (objective, other)]
    assert losses[0] == losses[1] == policy_loss(objective, *arguments).total


def test_dual_clip_is_part_of_the_loss() -> None:
    new = padded([[0.0, -1.0, -0.2], [-0.1], [-0.7, 0.0], [-1.5, -0.1, -0.9]])
    plain, bounded = (loss_of(replace(of("dapo"), dual_clip=dual), new).total for dual in (None, 1.5))
    # of the responses with A < 0, ratio e^1.5 of the second and e^0.8 of the third are above 1.5
    excess = -STANDARD[1] * (math.exp(1.5) - 1.5) - STANDARD[2] * (math.exp(0.8) - 1.5)
    assert float(plain - bounded) == pytest.approx(excess / 9)
