"""Estimates of the KL to the reference policy from the sampled tokens alone (Schulman, "Approximating KL")."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcjf.training.objectives.table import Estimator


def kl_estimate(logprobs: Tensor, reference: Tensor, mask: Tensor, estimator: Estimator) -> Tensor:
    """KL(policy ‖ reference) per token ``[B, T]``, 0 beyond the bool ``mask``; with d = reference - policy:

    k1 = -d: unbiased, may be negative, and its gradient as a loss is zero on average, so it belongs into the reward;
    k2 = d² / 2: its gradient as a loss is that of the KL; k3 = exp(d) - d - 1: unbiased, negative by rounding at most.
    """
    difference = torch.where(mask, reference - logprobs, 0.0)
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    return difference.exp() - difference - 1  # expm1 would show the last bits in which two passes of one model differ
