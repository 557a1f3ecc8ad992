"""Log-probabilities of tokens and of whole responses."""

from __future__ import annotations

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Log-probabilities of ``ids`` ``[B, T]`` under ``logits`` ``[B, T, V]`` / temperature."""
    return _chosen(_distribution(logits, temperature), ids)


def logprobs_and_entropy(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """:func:`token_logprobs`, and the entropy of each distribution in nats ``[B, T]`` (without gradient)."""
    everything = _distribution(logits, temperature)
    with torch.no_grad():
        entropy = -(everything.exp() * everything.clamp_min(-1e30)).sum(-1)
    return _chosen(everything, ids), entropy


def response_logprobs(logprobs: Tensor, mask: Tensor, *, mean: bool = False) -> Tensor:
    """``[B]``: Σ_t of ``logprobs`` ``[B, T]`` over a bool ``mask``, with ``mean`` over its length; 0 without tokens."""
    totals = torch.where(mask, logprobs, 0.0).sum(1)
    return totals / mask.sum(1).clamp_min(1) if mean else totals


def _distribution(logits: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(logits if temperature == 1 else logits / temperature, -1)


def _chosen(everything: Tensor, ids: Tensor) -> Tensor:
    return everything.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
