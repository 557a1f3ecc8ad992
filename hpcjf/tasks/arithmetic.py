"""All sums of two numbers of two digits: ``07+85=`` → ``092``. Needs no data and no hub."""

from __future__ import annotations

from hpcjf.tasks.base import Row, digest

_HELD_OUT = 1000


def split_rows() -> tuple[tuple[Row, ...], tuple[Row, ...], tuple[Row, ...]]:
    """Training rows (8,000), validation pool (1,000) and test rows (1,000), always the same ones.

    The pool is apart from the training rows, so that models taught on the latter never saw a validation sum.
    """
    rows = sorted((_row(a, b) for a in range(100) for b in range(100)), key=lambda row: digest(f"sums {row.prompt}"))
    return tuple(rows[2 * _HELD_OUT :]), tuple(rows[_HELD_OUT : 2 * _HELD_OUT]), tuple(rows[:_HELD_OUT])


def reward(row: Row, response: str) -> float:
    """1 if the response is the three digits and nothing else."""
    return float(response in row.references)


def _row(a: int, b: int) -> Row:
    return Row.of(f"{a:02d}+{b:02d}=", (f"{a + b:03d}",), "arithmetic")
