"""The objective on demonstrations."""

from __future__ import annotations

from torch import Tensor

from hpcjf.training.objectives.aggregate import weighted_sum


def sft_loss(logprobs: Tensor, mask: Tensor, scales: Tensor) -> Tensor:
    """Share of some demonstrations in the next-token loss of their minibatch, a scalar: -Σ scales log π.

    ``logprobs`` ``[B, T]``; the bool ``mask`` holds the response's tokens only, never the prompt's; ``scales`` ``[B]``
    come from :func:`~hpcjf.training.objectives.aggregate.response_scales`.
    """
    return -weighted_sum(logprobs, mask, scales)
