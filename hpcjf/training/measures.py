"""The metrics that every objective has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hpcjf.training.objectives.advantages import group_advantages
from hpcjf.training.rollout import Rollout
from hpcjf.training.update import Tally


def step_metrics(rollout: Rollout, rewards: Sequence[float | None], tally: Tally) -> dict[str, float]:
    """Of one global step, by trace column; ``rewards`` are those of all completions of ``rollout``."""
    finite = torch.tensor([r for r in rewards if r is not None and math.isfinite(r)], dtype=torch.float64)
    lengths = rollout.completion_mask.sum(1)
    flat = group_advantages(rewards, len(lengths) // len(rollout.prompt_ids)).zero_variance
    return {
        "kl": tally.per_token(tally.kl),
        "reward_mean": _mean(finite),
        "reward_std": float(finite.std(correction=0)) if len(finite) else math.nan,
        "reward_nonfinite": float(len(rewards) - len(finite)),
        "entropy": tally.per_token(tally.entropy),
        "loss": _mean(torch.tensor(tally.losses, dtype=torch.float64)),
        "grad_norm": _mean(torch.tensor(tally.norms, dtype=torch.float64)),
        "clip_fraction": tally.per_token(tally.clipped),
        "response_length": _mean(lengths.double()),
        "truncated_fraction": _mean(rollout.truncated.double()),
        "zero_variance_fraction": _mean(flat.double()),
        "tokens": float(lengths.sum()),
    }


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else math.nan
