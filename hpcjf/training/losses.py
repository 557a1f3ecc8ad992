"""The GRPO loss and its measurements: pure functions on log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``ids`` ``[B, R]`` under ``logits`` ``[B, R, V]`` / temperature, and the entropy of each
    distribution in nats ``[B, R]`` (without gradient)."""
    everything = torch.log_softmax(logits / temperature, -1)
    with torch.no_grad():
        entropy = -(everything.exp() * everything.clamp_min(-1e30)).sum(-1)
    return everything.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy


def policy_loss(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Clipped surrogate per token ``[B, R]``: -min(ρA, clip(ρ, 1 ± clip) A), ρ the importance ratio to ``old``.

    ``advantages`` is ``[B]``. Also returns where the clip range took the gradient away, bool ``[B, R]``.
    """
    ratio = (logprobs - old).exp()
    gain = advantages.unsqueeze(1)
    clipped = (ratio < 1 - clip) & (gain < 0) | (ratio > 1 + clip) & (gain > 0)
    return -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain), clipped


def kl_k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Estimate of KL(policy ‖ reference) per sampled token, k3 of Schulman's note: exp(d) - d - 1 ≥ 0 with
    d = reference - policy; any shape."""
    difference = reference - logprobs
    return difference.exp() - difference - 1


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over completions of the mean over their tokens: Σ_i 1/|o_i| Σ_t values, a scalar; ``[B, R]`` and a bool
    mask. Divided by the number of completions it is GRPO's normalisation. Masked values may be anything, NaN too."""
    kept = torch.where(mask, values, 0.0)
    return (kept.sum(1) / mask.sum(1).clamp_min(1)).sum()
