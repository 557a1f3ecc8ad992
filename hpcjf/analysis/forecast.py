"""What a study would run: its method on a virtual clock, against scores that favour no model and no direction.

The score of a configuration falls with its distance from the middle of the space, alike on all models, and rises with
the budget. No trial fails or is stopped early. Nothing here needs a job, a model or data.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import Pending, Searcher, SearchProblem
from hpcjf.study import SearchSection
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal

MOST = 200
"""Trials after which a forecast ends."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a global step and a start-up cost, by model: seconds, or any other unit that no limit is set in.

    ``limits`` are wall-time limits of a job, seconds, for the models that have one.
    """

    step: Mapping[str, float]
    startup: Mapping[str, float]
    limits: Mapping[str, float]
    seconds: bool

    def jobs(self, model: str, steps: int) -> int:
        """How many jobs of limited length train so many steps."""
        room = self.limits.get(model, math.inf) - self.startup[model]
        return math.ceil(steps * self.step[model] / room) if self.seconds and 0 < room < math.inf and steps else 1

    def cost(self, model: str, steps: int) -> float:
        return steps * self.step[model] + self.jobs(model, steps) * self.startup[model]


@dataclass(frozen=True, slots=True)
class Planned:
    """A search trial: ``steps`` that it runs itself, from where its configuration stood on the model."""

    fidelity: Fidelity
    steps: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """``in_flight``: the most trials at once; ``elapsed``: when the last one ends, in the pace's unit.

    ``limit`` says what ended the search.
    """

    trials: tuple[Planned, ...]
    in_flight: int
    elapsed: float
    limit: str


def forecast(problem: SearchProblem, searcher: Searcher, search: SearchSection, pace: Pace) -> Forecast:
    """Trials in the order in which they would be chosen."""
    return _Clock(problem, searcher, search, pace).run()


class _Clock:
    def __init__(self, problem: SearchProblem, searcher: Searcher, search: SearchSection, pace: Pace) -> None:
        self.problem, self.searcher, self.search, self.pace = problem, searcher, search, pace
        self.now, self.spent, self.in_flight = 0.0, 0.0, 0
        self.trials: list[Planned] = []
        self.running: list[tuple[float, int, Proposal, int]] = []
        self.steps: dict[tuple[str, str], int] = {}

    def run(self) -> Forecast:
        limit = ""
        while not limit or self.running:
            limit = limit or self._limit() or self._fill()
            if self.running:
                self._end()
        return Forecast(tuple(self.trials), self.in_flight, self.now, limit)

    def _limit(self) -> str:
        hours, job_hours = self.search.max_hours, self.search.max_job_hours
        if self.pace.seconds and hours is not None and self.now >= 3600 * hours:
            return f"max_hours, {hours:g}"
        if self.pace.seconds and job_hours is not None and self.spent >= 3600 * job_hours:
            return f"max_job_hours, {job_hours:g}"
        return ""

    def _fill(self) -> str:
        """Start trials in all free places; says what is at its end where nothing more will come."""
        while len(self.running) < self.search.parallel:
            number = len(self.trials)
            if number == self.search.max_trials:
                return f"max_trials, {number}"
            if number == MOST:
                return f"this forecast, which ends at {MOST} trials"
            proposal = self.searcher.ask(number, [Pending.of(started) for _, _, started, _ in self.running])
            if proposal is None:
                return "" if self.running else "the method itself, which has nothing more to ask"
            self._start(number, proposal)
        return ""

    def _start(self, number: int, proposal: Proposal) -> None:
        model = proposal.fidelity.model
        done = self.steps.get((config_id(proposal.config), model), 0)
        steps = max(0, proposal.fidelity.steps - done)
        self.trials.append(Planned(proposal.fidelity, steps))
        heapq.heappush(self.running, (self.now + self.pace.cost(model, steps), number, proposal, done))
        self.in_flight = max(self.in_flight, len(self.running))

    def _end(self) -> None:
        self.now, number, proposal, done = heapq.heappop(self.running)
        identity, at = config_id(proposal.config), proposal.fidelity
        self.steps[identity, at.model] = at.steps
        steps = at.steps - done
        self.spent += self.pace.cost(at.model, steps)
        self.searcher.tell(
            Observation(
                trial=number,
                config_id=identity,
                config=proposal.config,
                fidelity=at,
                score=self._score(proposal.config, at),
                cause=Cause.COMPLETED,
                start_step=done,
                seconds=steps * self.pace.step[at.model],
                startup_seconds=self.pace.startup[at.model],
                kl=None if self.problem.kl_ceiling is None else self.problem.kl_ceiling / 10,
                why=proposal.why,
            )
        )

    def _score(self, config: Config, at: Fidelity) -> float:
        away = float(np.mean((self.problem.space.encode([config]) - 0.5) ** 2))
        value = (1 - 2 * away) * (1 - math.exp(-3 * at.steps / self.problem.rungs[-1]))
        return value if self.problem.direction == "maximize" else -value
