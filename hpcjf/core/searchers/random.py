"""Random search: the recipe, then random configurations, all on the target at full budget."""

from __future__ import annotations

from collections.abc import Iterator

from hpcjf.core.searchers.sampling import Candidate, SamplingSearch, random_candidates


class RandomSearcher(SamplingSearch):
    def candidates(self, number: int) -> Iterator[Candidate]:
        return random_candidates(self.problem, number)
