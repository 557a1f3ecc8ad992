"""The critic's loss."""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(values: Tensor, old: Tensor, returns: Tensor, mask: Tensor, clip: float) -> Tensor:
    """½ max((V - R)², (V_old + clip(V - V_old, ± ``clip``) - R)²) per token (arXiv 2005.12729, sec. 3), ``[B, T]``.

    All arguments are ``[B, T]``: ``old`` the values at sampling, ``returns`` advantages plus these values, ``mask``
    bool, 0 beyond it.
    """
    error = torch.where(mask, values - returns.to(values.dtype), 0.0)
    step = torch.where(mask, values - old, 0.0)
    near = torch.where(mask, old - returns.to(values.dtype), 0.0) + step.clamp(-clip, clip)
    return torch.maximum(error.square(), near.square()) / 2
