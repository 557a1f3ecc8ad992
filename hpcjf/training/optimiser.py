"""AdamW with a schedule, which moves only what has a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpcjf.errors import TrainingError
from hpcjf.study import AlgorithmSection
from hpcjf.training.distributed import add_up, processes, summed
from hpcjf.training.schedule import rate_factor


@dataclass(frozen=True)
class Group:
    """Parameters with a gradient clip of their own; their learning rate is ``factor`` times the schedule's."""

    parameters: list[nn.Parameter]
    factor: float = 1.0


class Optimiser:
    """``peak`` is the learning rate before the schedule, ``horizon`` its length in global steps. ``taken`` are those
    with an update so far; the caller counts them, and they alone drive the schedule."""

    def __init__(self, groups: Sequence[Group], peak: float, horizon: int, algorithm: AlgorithmSection) -> None:
        self._groups, self._peak, self._horizon, self._algorithm = groups, peak, horizon, algorithm
        options = [{"params": group.parameters, "lr": peak} for group in groups]
        self._adam = torch.optim.AdamW(options, weight_decay=algorithm.weight_decay, fused=True)
        self.taken = 0

    @property
    def rate(self) -> float:
        """Learning rate of the present global step."""
        algorithm = self._algorithm
        return self._peak * rate_factor(algorithm.lr_scheduler, self.taken, algorithm.warmup_steps, self._horizon)

    def update(self, gradient: Callable[[], float | None], *, check: bool = False) -> tuple[float, float] | None:
        """Let ``gradient`` add one to the parameters and return its loss, then move them.

        Of several processes each adds its share. Returns loss and gradient norm before clipping; None where
        ``gradient`` had nothing to learn from, which must be so in all of them. Without a
        gradient, or with one that is not finite, nothing moves (see :func:`moves`). With ``check``, weights that an
        update left as they were are a TrainingError.
        """
        self._adam.zero_grad(set_to_none=True)
        part = gradient()
        if part is None:
            return None
        [loss] = summed([part])
        _add_gradients([parameter for group in self._groups for parameter in group.parameters])
        clip = self._algorithm.grad_clip
        norms = [float(nn.utils.clip_grad_norm_(group.parameters, clip)) for group in self._groups]
        norm = math.hypot(*norms)
        if moves(norm):
            policy = self._groups[0].parameters
            before = [parameter.detach().clone() for parameter in policy] if check and norms[0] else []
            self._step(norms)
            if before and all(map(torch.equal, before, policy)):
                raise TrainingError(
                    f"nothing is trained: an update with gradient norm {norms[0]:.3g} left all weights as they were",
                    fix="raise the learning rate",
                )
        return loss, norm

    def state(self) -> dict[str, Any]:
        return {"adam": self._adam.state_dict(), "taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """What :meth:`state` gave. Raises KeyError, ValueError or TypeError where it does not fit."""
        self._adam.load_state_dict(state["adam"])
        self.taken = int(state["taken"])

    def _step(self, norms: Sequence[float]) -> None:
        for group, options, norm in zip(self._groups, self._adam.param_groups, norms, strict=True):
            options["lr"] = self.rate * group.factor
            for parameter in group.parameters if norm == 0 else ():
                parameter.grad = None
        self._adam.step()


def moves(norm: float) -> bool:
    """Whether an update is made with a gradient of this norm."""
    return norm != 0 and math.isfinite(norm)


def _add_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Add up the gradients of the processes' shares; one without any counts as 0."""
    if processes() == 1:
        return
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    add_up([flat])
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
