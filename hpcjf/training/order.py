"""Data order and random streams as pure functions of the seed and a position: a resumed run needs no state here."""

from __future__ import annotations

import functools
import hashlib
import random


def batch_indices(rows: int, seed: int, step: int, size: int) -> list[int]:
    """Indices into ``rows`` training rows for global step ``step`` (from 0): positions ``step * size`` … of an endless
    walk that shuffles anew in each epoch. A batch may cross an epoch's end and hold a row twice."""
    places = (divmod(position, rows) for position in range(step * size, (step + 1) * size))
    return [_shuffled(rows, seed, epoch)[place] for epoch, place in places]


def stream_seed(seed: int, step: int) -> int:
    """Seed of the sampling stream of one global step, in [0, 2**63)."""
    return int.from_bytes(hashlib.sha256(f"sampling {seed} {step}".encode()).digest()[:8]) >> 1


@functools.lru_cache(maxsize=2)
def _shuffled(rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(rows))
    random.Random(f"order {seed} {epoch}").shuffle(order)
    return tuple(order)
