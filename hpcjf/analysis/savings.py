"""What a study cost, and which training steps it did not have to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hpcjf.core.lifecycle import Ending, StudyState, TrialState
from hpcjf.study import Study
from hpcjf.types import Cause, Purpose

WASTED = frozenset({Cause.FAILED, Cause.OUT_OF_MEMORY})


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Ended jobs of one model in one part of the study; wall seconds summed over jobs."""

    model: str
    part: str
    jobs: int
    steps: int
    seconds: float
    startup_seconds: float

    @property
    def hours(self) -> float:
        return (self.seconds + self.startup_seconds) / 3600


@dataclass(frozen=True, slots=True)
class Savings:
    """Global steps and seconds of the search, final trials apart (``costs`` holds both).

    ``resumed_steps``: start steps of first attempts, i.e. steps that a checkpoint of an earlier trial spared.
    ``stopped_steps``: from the step reached to the budget, over trials that a rule stopped.
    ``redone_steps``: steps that a later attempt of the same trial had to repeat.
    ``lost_steps``: steps of trials that the cluster or a fault ended for good.
    ``seconds_per_configuration``: job seconds over ``configurations``, the distinct ones that reached the lowest
    budget or were stopped by a rule; the paper's "time per trial".
    """

    run_steps: int
    resumed_steps: int
    resumed_trials: int
    stopped_steps: int
    stopped_trials: int
    redone_steps: int
    lost_steps: int
    configurations: int
    seconds_per_configuration: float | None
    mean_job_seconds: float | None
    costs: tuple[ModelCost, ...]

    @property
    def saved_share(self) -> float | None:
        """Steps spared over steps that would have been run without resuming and stopping."""
        saved = self.resumed_steps + self.stopped_steps
        return saved / (self.run_steps + saved) if self.run_steps + saved else None

    @property
    def hours(self) -> float:
        return sum(cost.hours for cost in self.costs)


def savings(state: StudyState, study: Study) -> Savings:
    """Over ended attempts; a running job counts once it has ended."""
    search = state.of(Purpose.SEARCH)
    ended = [ending for trial in search for ending in _endings(trial)]
    firsts = [_endings(trial)[0].start_step for trial in search if _endings(trial)]
    stopped = [trial for trial in search if trial.cause and trial.cause.stopped and _endings(trial)]
    counted = {trial.trial.config_id for trial in search if _counts(trial, study.budget.min)}
    seconds = state.job_seconds()
    return Savings(
        run_steps=sum(max(0, ending.step - ending.start_step) for ending in ended),
        resumed_steps=sum(firsts),
        resumed_trials=sum(start > 0 for start in firsts),
        stopped_steps=sum(max(0, trial.trial.fidelity.steps - _endings(trial)[-1].step) for trial in stopped),
        stopped_trials=len(stopped),
        redone_steps=sum(_redone(trial) for trial in search),
        lost_steps=sum(_lost(trial) for trial in search),
        configurations=len(counted),
        seconds_per_configuration=seconds / len(counted) if counted else None,
        mean_job_seconds=seconds / len(ended) if ended else None,
        costs=_costs(state, study),
    )


def _endings(trial: TrialState) -> list[Ending]:
    """Of attempts that got as far as a step; one that died before knows nothing of where it would have started."""
    endings = (attempt.ending for attempt in trial.attempts if attempt.ending)
    return [ending for ending in endings if ending.step > 0]


def _counts(trial: TrialState, lowest: int) -> bool:
    stopped = trial.cause is not None and trial.cause.stopped
    return stopped or any(ending.step >= lowest for ending in _endings(trial))


def _redone(trial: TrialState) -> int:
    return sum(max(0, before.step - after.start_step) for before, after in pairwise(_endings(trial)))


def _lost(trial: TrialState) -> int:
    if trial.cause is None or not (trial.cause.infrastructure or trial.cause in WASTED):
        return 0
    return sum(max(0, ending.step - ending.start_step) for ending in _endings(trial))


def _costs(state: StudyState, study: Study) -> tuple[ModelCost, ...]:
    parts = (("search", (Purpose.SEARCH,)), ("final comparison", (Purpose.FINAL, Purpose.RECIPE)))
    costs = (
        _cost(model.name, part, (t for t in state.of(*purposes) if t.trial.fidelity.model == model.name))
        for model in study.models
        for part, purposes in parts
    )
    return tuple(cost for cost in costs if cost.jobs)


def _cost(model: str, part: str, trials: Iterable[TrialState]) -> ModelCost:
    ended = [ending for trial in trials for ending in _endings(trial)]
    return ModelCost(
        model=model,
        part=part,
        jobs=len(ended),
        steps=sum(max(0, ending.step - ending.start_step) for ending in ended),
        seconds=sum(ending.seconds for ending in ended),
        startup_seconds=sum(ending.startup_seconds for ending in ended),
    )
