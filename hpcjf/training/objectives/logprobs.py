"""Log-probabilities of tokens and of whole responses."""

from __future__ import annotations

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``ids`` ``[B, T]`` under ``logits`` ``[B, T, V]`` / temperature, and the entropy of each
    distribution in nats ``[B, T]`` (without gradient)."""
    everything = torch.log_softmax(logits / temperature, -1)
    with torch.no_grad():
        entropy = -(everything.exp() * everything.clamp_min(-1e30)).sum(-1)
    return everything.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy


def response_logprobs(logprobs: Tensor, mask: Tensor, *, mean: bool = False) -> Tensor:
    """``[B]``: Σ_t of ``logprobs`` ``[B, T]`` over a bool ``mask``, with ``mean`` over its length; 0 without tokens."""
    totals = torch.where(mask, logprobs, 0.0).sum(1)
    return totals / mask.sum(1).clamp_min(1) if mean else totals
