"""The recipe as it is, once, on the target at full budget: the baseline without a search."""

from __future__ import annotations

from collections.abc import Sequence

from hpcjf.core.searchers.base import Pending, TargetSearch
from hpcjf.types import Proposal


class RecipeSearcher(TargetSearch):
    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        return None if self.history.exhausted(pending) else self.recipe_proposal(pending)
