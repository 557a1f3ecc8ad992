"""Test, validation and training rows: pure functions of the rows, with no random state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from hpcjf.tasks.base import Row, digest
from hpcjf.tasks.prepare import Prepared

Cut = tuple[list[Row], list[Row]]
"""Rows that stay, in file order, and rows taken out, in the order of their hashes: any prefix is a fair sample."""


def take_random(prepared: Prepared, count: int) -> Cut:
    """Takes ``count`` rows for the test, one by one: copies of a prompt may end on both sides, as in the paper.

    Contradictory prompts leave the training rows but stay in the test.
    """
    rows = prepared.rows
    order = sorted(range(len(rows)), key=lambda index: digest(f"test {index} {rows[index].key}"))
    taken = set(order[:count])
    rest = [row for i, row in enumerate(rows) if i not in taken and row.key not in prepared.contradictory]
    return rest, [rows[index] for index in order[:count]]


def take_grouped(prepared: Prepared, count: int) -> Cut:
    """Takes prompts with all their copies, as long as they fit into ``count`` rows. Contradictory prompts go."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in prepared.rows:
        if row.key not in prepared.contradictory:
            groups[row.key].append(row)
    test: list[Row] = []
    for key in sorted(groups, key=_by_hash("test")):
        if len(test) + len(groups[key]) <= count:
            test += groups.pop(key)
    return [row for row in prepared.rows if row.key in groups], test


def validation_candidates(rows: Sequence[Row], taboo: Collection[str]) -> list[Row]:
    """One row for each prompt that is not ``taboo``, in the order of the hashes."""
    first: dict[str, Row] = {}
    for row in rows:
        if row.key not in taboo:
            first.setdefault(row.key, row)
    return [first[key] for key in sorted(first, key=_by_hash("validation"))]


def shares(total: int, sizes: Sequence[int]) -> list[int]:
    """``total`` spread in proportion to ``sizes`` by largest remainders; no share exceeds its size.

    Needs total <= sum(sizes).
    """
    whole = sum(sizes)
    if whole == 0:
        return [0] * len(sizes)
    counts = [total * size // whole for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(total * sizes[i] % whole))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _by_hash(salt: str) -> Callable[[str], str]:
    return lambda key: digest(f"{salt} {key}")
