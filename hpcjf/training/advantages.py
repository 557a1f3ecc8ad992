"""Group-relative advantages (GRPO), on the CPU in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.errors import TrainingError

EPSILON = 1e-4
"""Added to a group's standard deviation."""


@dataclass(frozen=True)
class Advantages:
    """``values`` float64 ``[P, G]``, 0 wherever there is no signal; ``valid`` bool ``[P, G]``: the reward is finite;
    ``zero_variance`` bool ``[P]``: the group's finite rewards are all equal, or fewer than two."""

    values: Tensor
    valid: Tensor
    zero_variance: Tensor


def group_advantages(rewards: Sequence[float | None], group: int) -> Advantages:
    """(r - mean) / (std + 1e-4) within each group of ``group`` neighbours; std with the n - 1 denominator.

    Rewards that are None, NaN or infinite count in neither. Groups without variance are found by exact equality:
    the mean of equal floats need not equal them, and the tiny difference over a tiny std is a large advantage.
    Raises TrainingError for groups of one.
    """
    if group < 2:
        raise TrainingError("group-relative advantages need at least two completions per prompt", fix="raise rollouts")
    finite = [float("nan") if reward is None or not math.isfinite(reward) else float(reward) for reward in rewards]
    table = torch.tensor(finite, dtype=torch.float64).view(-1, group)
    valid = ~table.isnan()
    count = valid.sum(1, keepdim=True)
    filled = table.nan_to_num(0.0)
    low = table.nan_to_num(math.inf).amin(1)
    high = table.nan_to_num(-math.inf).amax(1)
    flat = low >= high  # also a group without any finite reward: inf >= -inf
    mean = filled.sum(1, keepdim=True) / count.clamp_min(1)
    centred = torch.where(valid, filled - mean, 0.0)
    std = (centred.square().sum(1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    values = torch.where(flat.unsqueeze(1), 0.0, centred / (std + EPSILON))
    return Advantages(values, valid, flat)
