"""Parts of a rollout batch that go through the model together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from hpcjf.training.rollout import Rollout


@dataclass(frozen=True)
class Piece:
    """What one forward pass sees: b completions of p prompts, padding trimmed to what they need.

    ``rows`` are their places among the batch's completions; ``ids`` are the first R tokens there.
    """

    rows: slice
    prompt: Tensor  # [p, T]
    prompt_mask: Tensor  # [p, T] bool
    ids: Tensor  # [b, R]
    attended: Tensor  # [b, R] bool

    def of(self, values: Tensor) -> Tensor:
        """This piece's part of a batch's ``values``, ``[B]`` or ``[B, R]``."""
        return values[self.rows] if values.dim() == 1 else values[self.rows, : self.ids.shape[1]]


def pieces(rollout: Rollout, groups: Sequence[int], size: int) -> Iterator[Piece]:
    """Cut ``groups`` (neighbours) into pieces of at most ``size`` completions: whole groups, or parts of one group
    where a group is larger."""
    if not groups:
        return
    width = len(rollout.completion_ids) // len(rollout.prompt_ids)
    whole = max(1, size // width)
    for start in range(groups[0], groups[-1] + 1, whole):
        stop = min(start + whole, groups[-1] + 1)
        rows = range(start * width, stop * width)
        for first in range(rows.start, rows.stop, rows.stop - rows.start if width <= size else size):
            last = rows.stop if width <= size else min(first + size, rows.stop)
            yield _piece(rollout, slice(start, stop), slice(first, last))


def _piece(rollout: Rollout, groups: slice, rows: slice) -> Piece:
    prompt_mask, mask = rollout.prompt_mask[groups], rollout.completion_mask[rows]
    begin = prompt_mask.shape[1] - int(prompt_mask.sum(1).max())
    end = int(mask.sum(1).max())
    return Piece(
        rows,
        rollout.prompt_ids[groups, begin:],
        prompt_mask[:, begin:],
        rollout.completion_ids[rows, :end],
        mask[:, :end],
    )
