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
    total = weighted_sum(surrogate, mask, scales)
    if objective.kl.place == "loss" and objective.kl.coefficient and reference is not None:
        kl = kl_estimate(logprobs, reference, mask, objective.kl.estimator)
        total = total + objective.kl.coefficient * weighted_sum(kl, mask, scales if kl_scales is None else kl_scales)
    return PolicyLoss(total, clipped & mask)
