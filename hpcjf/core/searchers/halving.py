"""Successive halving (Jamieson & Talwalkar 2016) and Hyperband (Li et al. 2018), bracket after bracket."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

from hpcjf.core.searchers.base import Pending, SearchProblem
from hpcjf.core.searchers.rungs import Place, RungSearch, place
from hpcjf.core.searchers.sampling import Candidate
from hpcjf.types import Proposal


@dataclass(frozen=True, slots=True)
class Bracket:
    """How many configurations train up to which budget, global steps, rung by rung."""

    sizes: tuple[int, ...]
    budgets: tuple[int, ...]


def brackets(rungs: Sequence[int], eta: float) -> tuple[Bracket, ...]:
    """Hyperband's brackets s = s_max … 0, the one with most configurations first.

    Bracket s starts with ⌊(s_max + 1) / (s + 1)⌋ η^s configurations: table 1 of Li et al. (2018) and HpBandSter;
    their algorithm 1 prints ⌈(s_max + 1) η^s / (s + 1)⌉, 34 for the 27 of the table.

    >>> brackets((1, 3, 9), 3)[1]
    Bracket(sizes=(3, 1), budgets=(3, 9))
    """
    top = len(rungs)
    made = []
    for s in reversed(range(top)):
        first = math.ceil(top // (s + 1) * eta**s)
        made.append(Bracket(tuple(max(1, int(first / eta**k)) for k in range(s + 1)), tuple(rungs[top - 1 - s :])))
    return tuple(made)


class HyperbandSearcher(RungSearch):
    """All brackets in turn, again and again. While rungs wait for trials in flight, the next bracket begins."""

    waits = False
    """Whether a bracket begins only when all trials of the one before have ended."""

    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self.brackets = brackets(problem.rungs, problem.eta)

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if self.history.exhausted(pending):
            return None
        fresh = cache(lambda: self.fresh(number, pending))
        flying = Counter(place(trial) for trial in pending)
        for bracket in count():
            found = self._next(bracket, flying, fresh, pending)
            begun = (bracket, 0) in self._ended or flying[bracket, 0] > 0
            if found or not begun or (self.waits and any(where[0] == bracket for where in flying)):
                return found
        return None

    def _next(
        self,
        bracket: int,
        flying: Counter[Place],
        fresh: Callable[[], Candidate | None],
        pending: Sequence[Pending],
    ) -> Proposal | None:
        """What ``bracket`` can run now."""
        shape = self.brackets[bracket % len(self.brackets)]
        room = shape.sizes[0] - len(self.ranked((bracket, 0))) - flying[bracket, 0]
        if room > 0 and (candidate := fresh()):
            return self.start(candidate, bracket, shape.budgets[0])
        for rung in range(1, len(shape.sizes)):
            if flying[bracket, rung - 1]:
                return None
            best = self.ranked((bracket, rung - 1))[: shape.sizes[rung]]
            if found := self.promotion(best, bracket, rung, shape.budgets[rung], pending):
                return found
        return None


class HalvingSearcher(HyperbandSearcher):
    """Hyperband's first bracket alone, again and again: each rung waits for its last trial."""

    waits = True

    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self.brackets = self.brackets[:1]
