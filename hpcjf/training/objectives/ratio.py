"""Importance ratios and the clipped surrogate."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcjf.training.objectives.table import RatioLevel

_LIMIT = 20.0  # on the logarithm of a ratio: an infinite ratio times an advantage of 0 would be NaN


def importance_ratio(logprobs: Tensor, old: Tensor, mask: Tensor, level: RatioLevel = "token") -> Tensor:
    """π / π_old of the sampled tokens; arguments ``[B, T]``, ``mask`` bool.

    token: ``[B, T]``, 1 beyond the mask. sequence_mean: ``[B, 1]``, to the power of 1 / length (GSPO, eq. 7).
    sequence: ``[B, 1]``, the product over the tokens.
    """
    difference = torch.where(mask, logprobs - old, 0.0)
    if level != "token":
        difference = difference.sum(1, keepdim=True)
    if level == "sequence_mean":
        difference = difference / mask.sum(1, keepdim=True).clamp_min(1)
    return difference.clamp(-_LIMIT, _LIMIT).exp()


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """-min(ρA, clip(ρ, 1 - low, 1 + high) A) (PPO, eq. 7), and where this took the gradient away (bool).

    ``ratio`` and ``advantages`` are ``[B, T]`` or ``[B, 1]``; the results have the larger of the two shapes. With
    ``dual`` c > 1 the loss where A < 0 is at most -cA (arXiv 1912.09729).
    """
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    clipped = (ratio < 1 - low) & (advantages < 0) | (ratio > 1 + high) & (advantages > 0)
    if dual is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
        clipped = clipped | (ratio > dual) & (advantages < 0)
    return loss, clipped
