"""What is raced: 24 cases, each a problem with a block of seeds, named before any method was compared on them.

Of the LCBench tables the two stand here whose cross-entropy has no outliers (the third's reaches 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hpcjf.errors import UserError
from race.problem import Problem

PROBLEMS = (
    "arithmetic xs>m",
    "arithmetic s>m",
    "arithmetic xs+s>m",
    "arithmetic s>l",
    "subtraction xs>m",
    "subtraction s>m",
    "scan-llm",
    "scan-vlm",
    "lcbench-126025",
    "lcbench-7593",
    "mfh3",
    "mfh6",
)
BLOCKS: Mapping[str, range] = {"A": range(0, 1000), "B": range(1000, 2000)}
"""The seeds of each block, in the order of their use."""
RECORDED = " recorded"
"""After the name of a surface of ours: with start-ups as long as they were."""


class Case(NamedTuple):
    problem: str
    block: str


CASES = tuple(Case(problem, block) for problem in PROBLEMS for block in BLOCKS)


def problem_of(name: str) -> Problem:
    """One of ``PROBLEMS``, or another table of LCBench, or another row of models of a recorded task."""
    # each kind brings its own libraries
    family, _, rest = name.partition("-")
    if name in ("mfh3", "mfh6"):
        from race.hartmann import Hartmann

        return Hartmann(int(name[-1]))
    if family == "lcbench":
        from race.lcbench import LCBench

        return LCBench(rest)
    if family == "scan" and rest in ("llm", "vlm"):
        from race.scan import Scan

        return Scan(rest)
    task, _, models = name.removesuffix(RECORDED).partition(" ")
    if ">" not in models:
        raise UserError(f"no problem {name}", fix=f"name one of {', '.join(PROBLEMS)}")
    from race.surfaces import Surfaces

    return Surfaces(task, models.replace(">", "+").split("+"), "recorded" if name.endswith(RECORDED) else "scaled")
