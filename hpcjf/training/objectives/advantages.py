"""Advantages of prompt groups, on the CPU in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.errors import TrainingError
from hpcjf.training.objectives.table import Baseline

EPSILON = 1e-4
"""Added to a group's standard deviation."""


@dataclass(frozen=True)
class Advantages:
    """``values`` float64 ``[P, G]``, 0 wherever there is no signal; ``valid`` bool ``[P, G]``: the reward is finite;
    ``zero_variance`` bool ``[P]``: the group's finite rewards are all equal, or fewer than two."""

    values: Tensor
    valid: Tensor
    zero_variance: Tensor


def group_advantages(rewards: Sequence[float | None], group: int, baseline: Baseline = "group_std") -> Advantages:
    """Advantages within each group of ``group`` neighbours, n of whose rewards are finite.

    group_std: (r - mean) / (std + 1e-4), std with the n - 1 denominator (GRPO); group_mean: r - mean (Dr. GRPO);
    leave_one_out: r - mean of the other n - 1 (RLOO). Rewards that are None, NaN or infinite count in none of these.
    Groups without variance are found by exact equality: the mean of equal floats need not equal them, and the tiny
    difference over a tiny std is a large advantage. Raises TrainingError for groups of one.
    """
    if group < 2:
        raise TrainingError("group-relative advantages need at least two completions per prompt", fix="raise rollouts")
    table = torch.tensor(finite(rewards), dtype=torch.float64).view(-1, group)
    valid = ~table.isnan()
    count = valid.sum(1, keepdim=True)
    filled = table.nan_to_num(0.0)
    low = table.nan_to_num(math.inf).amin(1)
    high = table.nan_to_num(-math.inf).amax(1)
    flat = low >= high  # also a group without any finite reward: inf >= -inf
    mean = filled.sum(1, keepdim=True) / count.clamp_min(1)
    values = torch.where(valid & ~flat.unsqueeze(1), filled - mean, 0.0)
    others = (count - 1).clamp_min(1)
    if baseline == "group_std":
        values = values / ((values.square().sum(1, keepdim=True) / others).sqrt() + EPSILON)
    elif baseline == "leave_one_out":
        values = values * count / others  # r - (n mean - r) / (n - 1)
    return Advantages(values, valid, flat)


def groups_with_signal(rewards: Sequence[float | None], group: int) -> list[int]:
    """DAPO's dynamic sampling: numbers of the groups whose finite rewards are not all equal, by exact equality."""
    flat = group_advantages(rewards, group).zero_variance
    return [number for number, without in enumerate(flat.tolist()) if not without]


def finite(rewards: Sequence[float | None]) -> list[float]:
    """``rewards`` with NaN in the place of None and infinities."""
    return [math.nan if reward is None or not math.isfinite(reward) else float(reward) for reward in rewards]
