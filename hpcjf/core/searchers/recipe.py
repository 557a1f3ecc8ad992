"""The recipe as it is, once, on the target at full budget: the baseline without a search."""

from __future__ import annotations

from collections.abc import Sequence

from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import Pending, TargetSearch
from hpcjf.types import Fidelity, Proposal


class RecipeSearcher(TargetSearch):
    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        recipe, untouched = self.problem.recipe, Fidelity(self.problem.target, 1)
        if self.history.exhausted(pending) or not self.history.open(config_id(recipe), untouched, pending):
            return None
        return Proposal(recipe, self.problem.full, {"reason": "recipe", "resumed_from": 0})
