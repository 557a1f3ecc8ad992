"""All sums or all differences of two numbers of two digits, without data or hub: ``07+85=`` → ``092`` in the task
``arithmetic``, ``07-85=`` → ``-78`` and ``05-05=`` → ``+00`` in ``subtraction``."""

from __future__ import annotations

from hpcjf.study import ArithmeticTask
from hpcjf.tasks.base import Row, digest

_HELD_OUT = 1000
_SALT = {"arithmetic": "sums", "subtraction": "differences"}


def split_rows(task: ArithmeticTask = "arithmetic") -> tuple[tuple[Row, ...], tuple[Row, ...], tuple[Row, ...]]:
    """Training rows (8,000), validation pool (1,000) and test rows (1,000), always the same ones.

    The pool is apart from the training rows, so that models taught on the latter never saw a validation row.
    """
    rows = [_row(a, b, task) for a in range(100) for b in range(100)]
    rows.sort(key=lambda row: digest(f"{_SALT[task]} {row.prompt}"))
    return tuple(rows[2 * _HELD_OUT :]), tuple(rows[_HELD_OUT : 2 * _HELD_OUT]), tuple(rows[:_HELD_OUT])


def reward(row: Row, response: str) -> float:
    """1 if the response is the three characters and nothing else."""
    return float(response in row.references)


def _row(a: int, b: int, task: ArithmeticTask) -> Row:
    if task == "subtraction":
        return Row.of(f"{a:02d}-{b:02d}=", (f"{a - b:+03d}",), task)
    return Row.of(f"{a:02d}+{b:02d}=", (f"{a + b:03d}",), task)
