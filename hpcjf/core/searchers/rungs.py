"""Rungs: trials that are compared at one budget, the best of which go on to the next."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcjf.core.searchers.base import Pending, SearchProblem
from hpcjf.core.searchers.sampling import Candidate, SamplingSearch, random_candidates
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal

Place = tuple[int, int]
"""Bracket and rung, both from 0."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What ended on a rung. ``value`` is to be maximised, minus infinity where the trial did not get there."""

    trial: int
    config_id: str
    config: Config
    value: float


class RungSearch(SamplingSearch):
    """A method whose proposals carry ``bracket`` and ``rung`` in ``why``, and which knows them by that when told.

    A trial that was lost to the cluster is not on its rung: its place is free again.
    """

    def __init__(self, problem: SearchProblem) -> None:
        super().__init__(problem)
        self._ended: defaultdict[Place, dict[str, Entry]] = defaultdict(dict)

    def tell(self, observation: Observation) -> None:
        super().tell(observation)
        if not observation.cause.infrastructure:
            entry = Entry(observation.trial, observation.config_id, observation.config, self._value(observation))
            self._ended[place(observation)][observation.config_id] = entry

    def candidates(self, number: int) -> Iterator[Candidate]:
        return random_candidates(self.problem, number)

    def ranked(self, where: Place) -> list[Entry]:
        """All that ended there, the best first, those that were stopped or failed last."""
        return sorted(self._ended.get(where, {}).values(), key=lambda entry: (-entry.value, entry.trial))

    def start(self, candidate: Candidate, bracket: int, steps: int) -> Proposal:
        """A new configuration on the lowest rung of ``bracket``, to train for ``steps``."""
        why = {**candidate[1], "bracket": bracket, "rung": 0, "resumed_from": 0}
        return Proposal(candidate[0], Fidelity(self.problem.target, steps), why)

    def promotion(
        self, best: Sequence[Entry], bracket: int, rung: int, steps: int, pending: Sequence[Pending]
    ) -> Proposal | None:
        """The first of ``best``, from the rung below, that can go on to ``rung`` and has not."""
        there, fidelity = self._ended.get((bracket, rung), {}), Fidelity(self.problem.target, steps)
        for rank, entry in enumerate(best, 1):
            waiting = entry.value > -math.inf and entry.config_id not in there
            if waiting and self.history.open(entry.config_id, fidelity, pending):
                resumed = self.history.steps(entry.config_id, fidelity.model)
                why = {"bracket": bracket, "rung": rung, "rank": rank, "resumed_from": resumed}
                return Proposal(entry.config, fidelity, {"reason": "promotion", **why})
        return None

    def _value(self, observation: Observation) -> float:
        score = observation.score
        if observation.cause is not Cause.COMPLETED or score is None or not math.isfinite(score):
            return -math.inf
        return score if self.problem.direction == "maximize" else -score


def place(trial: Observation | Pending) -> Place:
    """Where a trial of a method with rungs runs or ran."""
    return int(trial.why["bracket"]), int(trial.why["rung"])
