"""Random search: the recipe, then random configurations, all on the target at full budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import Pending, TargetSearch
from hpcjf.types import Proposal

_DRAWS = 1024
"""Enough to find what is left of a small space of categories; a real dimension never repeats."""


class RandomSearcher(TargetSearch):
    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if self.history.exhausted(pending):
            return None
        return self.recipe_proposal(pending) or self._random(number, pending)

    def _random(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        full = self.problem.full
        draws = islice(self.problem.draws(number), _DRAWS)
        new = (config for config in draws if self.history.open(config_id(config), full, pending))
        found = next(new, None)
        return Proposal(found, full, {"reason": "random"}) if found is not None else None
