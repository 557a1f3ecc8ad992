"""One optimiser update from one minibatch of prompt groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hpcjf.errors import TrainingError
from hpcjf.study import AlgorithmSection
from hpcjf.training.forward import completion_logits
from hpcjf.training.objectives.advantages import Advantages
from hpcjf.training.objectives.aggregate import weighted_sum
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.logprobs import token_logprobs
from hpcjf.training.objectives.ratio import clipped_surrogate, importance_ratio
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout


@dataclass
class Tally:
    """Sums over the tokens that entered the loss of one global step, and figures of each update."""

    tokens: int = 0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def per_token(self, total: float) -> float:
        """Mean per token; NaN without tokens, since 0/0 is no measurement."""
        return total / self.tokens if self.tokens else float("nan")


@dataclass(frozen=True)
class Piece:
    """What one forward and backward pass sees: b completions of p prompts, padding trimmed to what they need."""

    prompt: Tensor  # [p, T]
    prompt_mask: Tensor  # [p, T] bool
    ids: Tensor  # [b, R]
    attended: Tensor  # [b, R] bool
    counted: Tensor  # [b, R] bool: tokens of completions with a finite reward
    sampled: Tensor  # [b, R] log-probabilities at sampling
    advantages: Tensor  # [b] float32


def pieces(rollout: Rollout, advantages: Advantages, groups: Sequence[int], size: int) -> Iterator[Piece]:
    """Cut ``groups`` (neighbours) into pieces of at most ``size`` completions: whole groups, or parts of one group
    where a group is larger."""
    width = advantages.values.shape[1]
    device = rollout.completion_ids.device
    gains = advantages.values.flatten().to(device, torch.float32)
    valid = advantages.valid.flatten().to(device)
    whole = max(1, size // width)
    for start in range(groups[0], groups[-1] + 1, whole):
        stop = min(start + whole, groups[-1] + 1)
        rows = range(start * width, stop * width)
        for first in range(rows.start, rows.stop, rows.stop - rows.start if width <= size else size):
            last = rows.stop if width <= size else min(first + size, rows.stop)
            part = slice(first, last)
            yield _piece(rollout, slice(start, stop), part, gains[part], valid[part])


def _piece(rollout: Rollout, groups: slice, rows: slice, gains: Tensor, valid: Tensor) -> Piece:
    prompt_mask, mask = rollout.prompt_mask[groups], rollout.completion_mask[rows]
    begin = prompt_mask.shape[1] - int(prompt_mask.sum(1).max())
    end = int(mask.sum(1).max())
    mask = mask[:, :end]
    return Piece(
        rollout.prompt_ids[groups, begin:],
        prompt_mask[:, begin:],
        rollout.completion_ids[rows, :end],
        mask,
        mask & valid.unsqueeze(1),
        rollout.logprobs[rows, :end],
        gains,
    )


def accumulate(
    policy: Policy,
    piece: Piece,
    algorithm: AlgorithmSection,
    *,
    completions: int,
    tally: Tally,
    fresh: bool,
    start: bool,
) -> float:
    """Add the gradient of ``piece`` to the parameters; returns its share of the minibatch's loss.

    The loss is GRPO's: per completion the mean over its tokens, then the mean over the ``completions`` of the
    minibatch that have a finite reward. ``fresh``: no update came after sampling, so the importance ratio is exactly 1
    and the old log-probabilities are this very pass; later minibatches take those recorded at sampling.
    ``start``: the policy was never updated, so any KL other than 0 is a fault (TrainingError).
    """
    arguments = (piece.prompt, piece.prompt_mask, piece.ids, piece.attended)
    with policy.precision():
        with policy.reference() as model:
            reference, _ = token_logprobs(completion_logits(model, *arguments), piece.ids, algorithm.temperature)
        logits = completion_logits(policy.model, *arguments)
    logprobs, entropy = token_logprobs(logits, piece.ids, algorithm.temperature)
    old = logprobs.detach() if fresh else piece.sampled
    counted, clip = piece.counted, algorithm.clip_range
    ratio = importance_ratio(logprobs, old, counted)
    surrogate, clipped = clipped_surrogate(ratio, piece.advantages.unsqueeze(1), clip, clip)
    kl = kl_estimate(logprobs, reference, counted, "k3")
    if start and not bool((kl.detach()[counted] == 0).all()):
        raise TrainingError(
            f"KL to the reference is {float(kl.detach()[counted].abs().max()):.3g} before the first update, not 0",
            fix="policy and reference must be the same model, without dropout",
        )
    scales = 1 / (counted.sum(1).clamp_min(1) * completions)
    loss = weighted_sum(surrogate + algorithm.kl_coef * kl if algorithm.kl_coef else surrogate, counted, scales)
    loss.backward()  # type: ignore[no-untyped-call]
    tally.tokens += int(counted.sum())
    tally.kl += float(kl.detach()[counted].double().sum())
    tally.entropy += float(entropy[counted].double().sum())
    tally.clipped += float(clipped[counted].sum())
    return float(loss.detach())
