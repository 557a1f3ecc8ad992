"""From values per token to a scalar: one factor per response, fixed for a whole minibatch, so that the losses and
gradients of its pieces add up to those of the whole."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcjf.errors import TrainingError
from hpcjf.training.objectives.table import Aggregation


def response_scales(
    lengths: Tensor, aggregation: Aggregation, *, weights: Tensor | None = None, max_length: int = 0
) -> Tensor:
    """What each token of response i is multiplied with before all are added up: float64 ``[B]``.

    ``lengths`` ``[B]`` counts the tokens in the loss, of all responses of a minibatch; those with none count nowhere.
    ``weights`` ``[B]``, all 1 where omitted, are w_i in

    sequence_mean: w_i / (|o_i| Σ w), GRPO and HARGO; token_mean: w_i / Σ_j w_j |o_j|, DAPO;
    max_length: w_i / (``max_length`` Σ w), Dr. GRPO; without it TrainingError.
    """
    if aggregation == "max_length" and max_length < 1:
        raise TrainingError("this aggregation needs the length limit", fix="pass max_length")
    lengths = lengths.double()
    kept = (lengths > 0).double() if weights is None else torch.where(lengths > 0, weights.to(lengths), 0.0)
    if aggregation == "token_mean":
        total = (kept * lengths).sum()
    else:
        total = kept.sum() * (lengths if aggregation == "sequence_mean" else max_length)
    return torch.where(kept > 0, kept / total, 0.0)


def weighted_sum(values: Tensor, mask: Tensor, scales: Tensor) -> Tensor:
    """Σ_i scales_i Σ_t values: a scalar; ``values`` ``[B, T]`` (or ``[B, 1]``, the same for all tokens), bool ``mask``
    ``[B, T]``, ``scales`` ``[B]``. Masked values may be anything, NaN too, and get no gradient."""
    return (torch.where(mask, values, 0.0).sum(1) * scales.to(values)).sum()


def masked_mean(values: Tensor, mask: Tensor) -> float:
    """Mean of ``values`` over the bool ``mask`` of the same shape; NaN where it is empty: 0/0 is no measurement."""
    return float(values.detach()[mask].double().mean())
