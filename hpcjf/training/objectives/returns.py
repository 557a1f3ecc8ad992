"""Rewards with the KL in them, and advantages per token: returns, generalised advantage estimation, whitening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.training.objectives.advantages import EPSILON, finite


@dataclass(frozen=True)
class TokenAdvantages:
    """All ``[B, T]``: whitened advantages and returns (the critic's targets), both float64 and 0 beyond ``counted``;
    ``counted`` bool: tokens of responses with a finite reward."""

    values: Tensor
    returns: Tensor
    counted: Tensor


def penalised(rewards: Sequence[float | None], kl: Tensor, mask: Tensor, coefficient: float) -> list[float | None]:
    """r - β Σ_t kl: the KL of each response taken off its reward (RLOO); ``kl`` and bool ``mask`` are ``[B, T]``.

    Equal rewards stop being equal: a group without variance afterwards has none in its KL either.
    """
    totals = torch.where(mask, kl.detach().double(), 0.0).sum(1).tolist()
    return [
        None if reward is None else reward - coefficient * total for reward, total in zip(rewards, totals, strict=True)
    ]


def token_advantages(
    rewards: Sequence[float | None],
    kl: Tensor,
    mask: Tensor,
    coefficient: float,
    *,
    values: Tensor | None = None,
    decay: float = 1.0,
) -> TokenAdvantages:
    """Whitened advantages of a whole batch. ``kl``, bool ``mask`` and the critic's ``values`` are ``[B, T]``.

    The reward of a token is -β kl, that of a response's last token also the response's (token-level reward of
    REINFORCE++ and PPO). With neither ``values`` nor ``decay`` the advantage is the sum of the rewards to come
    (REINFORCE++, eq. 8), else :func:`generalised_advantages` with λ = ``decay``. Responses whose reward is not finite
    count nowhere. A truncated response ends like any other.
    """
    scores = torch.tensor(finite(rewards), dtype=torch.float64, device=mask.device).unsqueeze(1)
    counted = mask & ~scores.isnan()
    last = counted & (counted.flip(1).cumsum(1).flip(1) == 1)
    per_token = torch.where(counted, -coefficient * kl.detach().double(), 0.0) + torch.where(last, scores, 0.0)
    baseline = torch.zeros_like(per_token) if values is None else torch.where(counted, values.detach().double(), 0.0)
    advantages = generalised_advantages(per_token, baseline, counted, decay)
    return TokenAdvantages(whitened(advantages, counted), advantages + baseline, counted)


def generalised_advantages(rewards: Tensor, values: Tensor, mask: Tensor, decay: float) -> Tensor:
    """A_t = δ_t + λ A_{t+1} with δ_t = r_t + V_{t+1} - V_t (arXiv 1506.02438, γ = 1), 0 beyond the bool ``mask``; all
    ``[B, T]``. Beyond the last token V = 0; tokens that the mask leaves out in between are stepped over."""
    found = torch.zeros_like(rewards)
    advantage = following = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        here = rewards[:, t] + following - values[:, t] + decay * advantage
        advantage = torch.where(mask[:, t], here, advantage)
        following = torch.where(mask[:, t], values[:, t], following)
        found[:, t] = torch.where(mask[:, t], here, 0.0)
    return found


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """(x - mean) / (std + 1e-4) over the tokens in the bool ``mask``, std with the n - 1 denominator; 0 elsewhere, and
    everywhere where all are exactly equal. ``[B, T]``. A smaller ε would blow up the rounding of a KL that is 0."""
    kept = values[mask]
    if not len(kept) or bool((kept == kept[0]).all()):
        return torch.zeros_like(values)
    return torch.where(mask, (values - kept.mean()) / (kept.std() + EPSILON), 0.0)
