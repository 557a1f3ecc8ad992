"""What the methods share that look for new configurations on the target alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import Pending, SearchProblem, TargetSearch
from hpcjf.types import Config, Fidelity, Proposal, Scalar

Candidate = tuple[Config, Mapping[str, Scalar]]
"""A configuration and the figures that speak for it."""

_DRAWS = 1024
"""Enough to find what is left of a small space of categories; a real dimension never repeats."""


def random_candidates(problem: SearchProblem, number: int) -> Iterator[Candidate]:
    """Random configurations for trial ``number``, up to the last of a small space."""
    seen = set[str]()
    for config in islice(problem.draws(number), _DRAWS):
        yield config, {"reason": "random"}
        seen.add(config_id(config))
        if len(seen) >= problem.space.size:
            return


class SamplingSearch(TargetSearch, ABC):
    """The recipe, then the given configurations, then the method's, at the full budget of the target."""

    @abstractmethod
    def candidates(self, number: int) -> Iterator[Candidate]:
        """What to try in trial ``number``, in order; the first that was not yet tried is taken."""

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        found = None if self.history.exhausted(pending) else self.fresh(number, pending)
        return Proposal(found[0], self.problem.full, {**found[1], "resumed_from": 0}) if found else None

    def fresh(self, number: int, pending: Sequence[Pending]) -> Candidate | None:
        """A configuration that the target has not seen."""
        problem = self.problem
        untouched = Fidelity(problem.target, 1)
        known = chain([(problem.recipe, "recipe")], ((config, "given") for config in problem.given))
        options = chain(((config, {"reason": reason}) for config, reason in known), self.candidates(number))
        return next((o for o in options if self.history.open(config_id(o[0]), untouched, pending)), None)
