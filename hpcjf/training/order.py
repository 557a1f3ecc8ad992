"""Data order and random streams as pure functions of the seed and a position: a resumed run needs no state here."""

from __future__ import annotations

import functools
import hashlib
import random


def batch_indices(rows: int, seed: int, step: int, size: int, walk: str = "order") -> list[int]:
    """Indices into ``rows`` training rows for batch ``step`` (from 0): positions ``step * size`` … of an endless
    walk that shuffles anew in each epoch. A batch may cross an epoch's end and hold a row twice. Walks of another name
    are independent."""
    places = (divmod(position, rows) for position in range(step * size, (step + 1) * size))
    return [_shuffled(rows, f"{walk} {seed} {epoch}")[place] for epoch, place in places]


def draw_indices(rows: int, seed: int, step: int, redraw: int, size: int) -> list[int]:
    """Draw 0 of a global step are its :func:`batch_indices`. Further ones shuffle all rows, for themselves, and repeat
    none unless ``size`` is larger."""
    if not redraw:
        return batch_indices(rows, seed, step, size)
    order = list(range(rows))
    random.Random(f"redraw {seed} {step} {redraw}").shuffle(order)
    return [order[place % rows] for place in range(size)]


def stream_seed(seed: int, step: int, redraw: int = 0) -> int:
    """Seed of the sampling stream of one draw of a global step, in [0, 2**63)."""
    name = f"sampling {seed} {step}" + (f" {redraw}" if redraw else "")
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


@functools.lru_cache(maxsize=4)
def _shuffled(rows: int, name: str) -> tuple[int, ...]:
    order = list(range(rows))
    random.Random(name).shuffle(order)
    return tuple(order)
