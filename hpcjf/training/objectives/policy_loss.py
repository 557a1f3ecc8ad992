"""The loss of every policy-gradient objective, put together from its parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.training.objectives.aggregate import weighted_sum
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.ratio import clipped_surrogate, importance_ratio
from hpcjf.training.objectives.table import PolicyGradient


@dataclass(frozen=True)
class PolicyLoss:
    """``total`` is the scalar to differentiate; ``clipped`` bool ``[B, T]``: tokens in the loss whose gradient the
    clip range took away."""

    total: Tensor
    clipped: Tensor


def policy_loss(
    objective: PolicyGradient,
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    scales: Tensor,
    *,
    reference: Tensor | None = None,
    kl_scales: Tensor | None = None,
) -> PolicyLoss:
    """Share of some responses in the loss of their minibatch: Σ scales (surrogate + β kl).

    ``logprobs``, ``old`` (at sampling) and ``reference`` are ``[B, T]``, ``advantages`` ``[B]`` or ``[B, T]``; ``mask``
    bool ``[B, T]`` are the tokens in the loss, others may hold anything. ``scales`` ``[B]`` come from
    :func:`~hpcjf.training.objectives.aggregate.response_scales`, and so do ``kl_scales`` where the KL has its own.
    ``reference`` is needed only where the KL stands in the loss.
    """
    gains = advantages.to(logprobs)
    gains = torch.where(mask, gains, 0.0) if gains.dim() == 2 else gains.unsqueeze(1)
    ratio = importance_ratio(logprobs, old, mask, objective.ratio)
    surrogate, clipped = clipped_surrogate(ratio, gains, objective.clip_low, objective.clip_high, objective.dual_clip)
    if objective.kl.place == "reward" or not objective.kl.coefficient or reference is None:
        return PolicyLoss(weighted_sum(surrogate, mask, scales), clipped & mask)
    penalty = objective.kl.coefficient * kl_estimate(logprobs, reference, mask, objective.kl.estimator)
    if kl_scales is None:
        total = weighted_sum(surrogate + penalty, mask, scales)
    else:
        total = weighted_sum(surrogate, mask, scales) + weighted_sum(penalty, mask, kl_scales)
    return PolicyLoss(total, clipped & mask)
