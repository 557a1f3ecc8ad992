"""Asynchronous successive halving (ASHA), promotion type: algorithm 2 of Li et al. (2020)."""

from __future__ import annotations

from collections.abc import Sequence

from hpcjf.core.searchers.base import Pending
from hpcjf.core.searchers.rungs import RungSearch
from hpcjf.types import Proposal


class AshaSearcher(RungSearch):
    """From the highest rung down, what is among the best 1/η of its rung goes on; else a new configuration starts."""

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if self.history.exhausted(pending):
            return None
        rungs = self.problem.rungs
        for rung in reversed(range(1, len(rungs))):
            ranked = self.ranked((0, rung - 1))
            best = ranked[: int(len(ranked) / self.problem.eta)]
            if found := self.promotion(best, 0, rung, rungs[rung], pending):
                return found
        candidate = self.fresh(number, pending)
        return self.start(candidate, 0, rungs[0]) if candidate else None
