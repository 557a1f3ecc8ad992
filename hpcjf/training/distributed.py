"""Data-parallel training: every process holds the whole model and works on its share of each batch.

Processes are those of torch.distributed's default group; without one, a process is alone and all of this does nothing.
Everyone knows the whole batch, its rewards and what follows from them; shares of losses and gradients are added up, as
the factor of each response is fixed beforehand for its whole minibatch. Results differ from those of one process by
rounding alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

Item = TypeVar("Item")
_PATIENCE = datetime.timedelta(minutes=30)
"""How long a process waits for another one's share of a step."""


def meet(place: int) -> None:
    """Form the group that the environment of torch.distributed describes; ``place`` is this process's on its node."""
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(place % gpus)
    distributed.init_process_group("nccl" if gpus else "gloo", timeout=_PATIENCE)


def processes() -> int:
    """Number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """This one's number, from 0: the first one writes."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def share(items: Sequence[Item], member: int | None = None) -> Sequence[Item]:
    """The part of ``items`` that is this process's, or ``member``'s: neighbours, possibly none. Sizes differ by one at
    most."""
    count, who = processes(), rank() if member is None else member
    bounds = [len(items) * i // count for i in range(count + 1)]
    return items[bounds[who] : bounds[who + 1]]


def gathered(mine: Sequence[Item]) -> list[Item]:
    """Everyone's items, those of process 0 first."""
    if processes() == 1:
        return list(mine)
    parts: list[Any] = [None] * processes()
    distributed.all_gather_object(parts, list(mine))
    return [item for part in parts for item in part]


def agreed(value: Item) -> Item:
    """``value`` of process 0."""
    if processes() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def summed(values: Sequence[float]) -> list[float]:
    """Each added up over the processes, in float64."""
    if processes() == 1:
        return list(values)
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    totals = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(totals)
    found: list[float] = totals.tolist()
    return found


def add_up(tensors: Iterable[Tensor]) -> None:
    """Add up each tensor over the processes, in place."""
    for tensor in tensors if processes() > 1 else ():
        distributed.all_reduce(tensor)
