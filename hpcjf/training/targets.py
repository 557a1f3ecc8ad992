"""What a global step trains on, worked out once before its first update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.training.distributed import add_up, share
from hpcjf.training.learner import Learner, at_start
from hpcjf.training.objectives.advantages import Advantages, finite, group_advantages
from hpcjf.training.objectives.aggregate import response_scales
from hpcjf.training.objectives.hargo import (
    HargoWeights,
    hargo_metrics,
    hargo_scales,
    hargo_weights,
    reference_confidence,
)
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.returns import penalised, token_advantages
from hpcjf.training.objectives.table import Kl, PolicyGradient
from hpcjf.training.pieces import pieces
from hpcjf.training.rollout import Rollout


@dataclass(frozen=True)
class Targets:
    """For B responses of at most R tokens.

    ``gains`` are advantages, ``[B]`` or one per token ``[B, R]``; ``scales`` and ``kl_scales`` ``[B]`` those of
    :func:`~hpcjf.training.objectives.policy_loss.policy_loss`, for the minibatches that were asked for. ``values`` and
    ``returns`` are the critic's, NaN-free, None without one. ``level`` is HARGO's ℓ̄, ``metrics`` are for the trace.
    """

    counted: Tensor  # [B, R] bool: tokens of completions with a finite reward
    sampled: Tensor  # [B, R] log-probabilities at sampling
    reference: Tensor  # [B, R]
    gains: Tensor
    scales: Tensor
    kl_scales: Tensor | None
    values: Tensor | None  # [B, R]
    returns: Tensor | None  # [B, R]
    level: float | None
    metrics: dict[str, float]


@dataclass(frozen=True)
class Plan:
    """How a batch is worked through: ``minibatches`` list groups, in order and without gaps; ``micro_batch`` is in
    completions, ``max_length`` in tokens; ``start``: the policy was never updated; ``level``: HARGO's ℓ̄ so far."""

    minibatches: Sequence[Sequence[int]]
    micro_batch: int
    max_length: int
    start: bool
    level: float | None


@dataclass(frozen=True)
class _Passes:
    """Over the whole batch, ``[B, R]``, 0 where nothing counts. The KL is 0 where it stays out of the rewards."""

    reference: Tensor
    kl: Tensor
    values: Tensor | None


def make_targets(
    learner: Learner, objective: PolicyGradient, rollout: Rollout, rewards: Sequence[float | None], plan: Plan
) -> Targets:
    """Targets of one ``rollout`` batch with its rewards ``[B]``. Raises TrainingError where the policy was never
    updated and yet is not the reference."""
    group = len(rollout.completion_ids) // len(rollout.prompt_ids)
    valid = torch.tensor([not math.isnan(reward) for reward in finite(rewards)], device=rollout.completion_ids.device)
    counted = rollout.completion_mask & valid.unsqueeze(1)
    passes = _passes(learner, objective.kl, rollout, counted, plan)
    penalty = objective.kl.coefficient if objective.kl.place == "reward" else 0.0
    returns = weights = None
    metrics: dict[str, float] = {}
    level = plan.level
    if objective.advantage == "returns":
        decay = objective.critic.decay if objective.critic else 1.0
        found = token_advantages(rewards, passes.kl, counted, penalty, values=passes.values, decay=decay)
        gains, returns = found.values, found.returns
    else:
        judged = penalised(rewards, passes.kl, counted, penalty) if penalty else rewards
        advantages = group_advantages(judged, group, objective.advantage)
        gains = advantages.values.flatten()
        if objective.hargo:
            confidence, level = reference_confidence(passes.reference, counted, level, objective.hargo.decay)
            weights = hargo_weights(objective.hargo, advantages, confidence.view(-1, group).cpu())
            gains, metrics = weights.advantages.flatten(), _hargo_metrics(weights, advantages, level)
    scales, kl_scales = _scales(objective, counted, weights, plan, group)
    return Targets(
        counted=counted,
        sampled=rollout.logprobs,
        reference=passes.reference,
        gains=gains.to(counted.device, torch.float32),
        scales=scales,
        kl_scales=kl_scales,
        values=passes.values,
        returns=returns if objective.critic else None,
        level=level,
        metrics=metrics,
    )


def _passes(learner: Learner, kl: Kl, rollout: Rollout, counted: Tensor, plan: Plan) -> _Passes:
    in_reward = kl.place == "reward" and kl.coefficient > 0
    reference, penalty, values = (torch.zeros_like(rollout.logprobs) for _ in range(3))
    for piece in (p for groups in plan.minibatches for p in pieces(rollout, share(groups), plan.micro_batch)):
        mask = piece.of(counted)
        if not bool(mask.any()):
            continue
        piece.of(reference).copy_(learner.reference(piece))
        if in_reward or learner.head:
            with torch.no_grad():
                now = learner.act(piece)
            if plan.start:
                piece.of(reference).copy_(at_start(now.logprobs, piece.of(reference), mask))
            if in_reward:
                piece.of(penalty).copy_(kl_estimate(now.logprobs, piece.of(reference), mask, kl.estimator))
            if now.values is not None:
                piece.of(values).copy_(now.values)
    add_up((reference, penalty, values))
    return _Passes(reference, penalty, values if learner.head else None)


def _scales(
    objective: PolicyGradient, counted: Tensor, weights: HargoWeights | None, plan: Plan, group: int
) -> tuple[Tensor, Tensor | None]:
    lengths = counted.sum(1).view(-1, group)
    scales, kl_scales = [], []
    for groups in plan.minibatches:
        part = slice(groups[0], groups[-1] + 1)
        own = lengths[part].flatten()
        if objective.hargo and weights:
            surrogate, kl = hargo_scales(objective.hargo, weights.of(part), own)
            kl_scales.append(kl)
        else:
            surrogate = response_scales(own, objective.aggregation, max_length=plan.max_length)
        scales.append(surrogate)
    return torch.cat(scales), torch.cat(kl_scales) if kl_scales else None


def _hargo_metrics(weights: HargoWeights, advantages: Advantages, level: float | None) -> dict[str, float]:
    return hargo_metrics(weights, advantages.valid) | {"hargo_level": math.nan if level is None else level}
