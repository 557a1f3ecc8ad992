"""Search, final runs, and the ends of both."""

from __future__ import annotations

from typing import Any

import pytest

from hpcjf.controller.answer import Answer
from hpcjf.controller.planning import HOPELESS, Planner
from hpcjf.core.lifecycle import Phase, StudyState
from hpcjf.errors import HpcjfError, StoreError
from hpcjf.study import Study
from hpcjf.types import Cause, Config, Fidelity, Proposal, Purpose

RECIPE: Config = {"learning_rate": 1e-4, "rollouts": 5}
OTHER: Config = {"learning_rate": 1e-3, "rollouts": 5}


class Desk:
    """A journal in memory with a clock that counts events, and a searcher with a list of answers."""

    def __init__(self, best: Config = OTHER, **search: Any) -> None:
        self.study = Study.model_validate(
            {
                "study": {"training_seeds": 2},
                "models": [{"name": "s", "path": "s"}, {"name": "m", "path": "m"}],
                "recipe": dict(RECIPE),
                "budget": {"min": 10, "max": 30},
                "search": {"max_trials": 4, **search},
            }
        )
        self.state, self.best, self.asked = StudyState(), best, list[int]()
        self.planner = Planner(self.study, self.ask, self.emit)
        self.dry, self.most = False, 100
        self.config = OTHER
        self.fault: HpcjfError | None = None
        self.events: list[str] = []
        self.failing_after: int | None = None

    def emit(self, kind: str, **fields: Any) -> None:
        if self.failing_after == len(self.events):
            raise StoreError("no room")
        self.events.append(kind)
        last = self.state.last_time
        self.state.apply({"kind": kind, "time": 0.0 if last is None else last + 1.0, **fields})

    def ask(self, count: int) -> Answer:
        self.asked.append(count)
        if self.fault:
            raise self.fault
        proposal = Proposal(self.config, Fidelity("s", 10), {"reason": "test"})
        return Answer((proposal,) * (0 if self.dry else min(count, self.most)), self.best)

    def plan(self, free: int) -> None:
        self.planner.plan(self.state, free)

    def end(self, number: int, cause: Cause = Cause.COMPLETED, step: int = 10) -> None:
        self.emit("attempt", trial=number, attempt=1, name=f"a{number}")
        fields = {"step": step, "start_step": 0, "score": 0.5, "seconds": 100.0, "startup_seconds": 20.0}
        self.emit("ended", trial=number, attempt=1, cause=cause, detail="boom", retry=False, **fields)


def test_asks_for_no_more_than_slots_and_trials_allow() -> None:
    desk = Desk()
    desk.plan(3)
    assert desk.asked == [3]
    assert len(desk.state.trials) == 3
    desk.end(0)
    desk.plan(3)
    assert desk.asked == [3, 1]


def test_does_not_ask_again_before_something_has_changed() -> None:
    desk = Desk()
    desk.dry = True
    desk.planner.plan(desk.state, 2)
    desk.emit("trial", **_trial(0))
    desk.plan(2)
    desk.plan(2)
    assert len(desk.asked) == 2


def test_what_was_asked_for_is_all_there_is_until_a_trial_ends() -> None:
    """A method that gives fewer than there is room for waits for something."""
    desk = Desk()
    desk.most = 1
    for _ in range(3):
        desk.plan(3)
    assert desk.asked == [3]
    desk.end(0)
    desk.plan(3)
    assert desk.asked == [3, 3]


def test_a_trial_keeps_every_name_of_its_configuration_the_spaces_first() -> None:
    desk = Desk()
    space = {name: {"type": "integer", "low": 1, "high": 9} for name in ("width", "depth")}
    desk.study = Study.model_validate(desk.study.model_dump() | {"space": space})
    desk.planner = Planner(desk.study, desk.ask, desk.emit)
    desk.config = {"zeta": 1, "depth": 2, "learning_rate": 1e-3, "width": 3, "alpha": "x"}
    desk.plan(1)
    config = desk.state.trials[0].trial.config
    assert dict(config) == desk.config
    assert list(config) == ["width", "depth", "alpha", "learning_rate", "zeta"]


def _trial(number: int) -> dict[str, Any]:
    fidelity = {"model": "s", "steps": 10, "training_seed": 0}
    return {"number": number, "config_id": "c", "config": OTHER, "purpose": "search", "why": {}, **fidelity}


def test_winner_and_recipe_meet_on_the_target_with_the_same_fresh_seeds() -> None:
    desk = Desk()
    desk.plan(4)
    for number in range(4):
        desk.end(number)
    desk.plan(4)
    finals = desk.state.of(Purpose.FINAL, Purpose.RECIPE)
    assert desk.state.phase is Phase.FINAL
    assert {(t.trial.purpose, t.trial.training_seed, t.trial.fidelity) for t in finals} == {
        (purpose, seed, Fidelity("m", 30)) for purpose in (Purpose.FINAL, Purpose.RECIPE) for seed in (1, 2)
    }
    assert all(t.trial.training_seed != 0 for t in finals), "the search's own seed would favour the winner"


def test_recipe_that_wins_is_trained_once() -> None:
    desk = Desk(best=RECIPE)
    desk.plan(4)
    for number in range(4):
        desk.end(number)
    desk.plan(4)
    assert {t.trial.purpose for t in desk.state.of(Purpose.FINAL, Purpose.RECIPE)} == {Purpose.RECIPE}


def test_study_is_done_when_the_last_final_run_has_ended() -> None:
    desk = Desk(max_trials=1)
    desk.plan(1)
    desk.end(0)
    desk.plan(1)
    for known in desk.state.of(Purpose.FINAL, Purpose.RECIPE):
        assert desk.state.phase is Phase.FINAL
        desk.end(known.trial.number)
        desk.plan(1)
    assert desk.state.phase is Phase.DONE


@pytest.mark.parametrize("written", range(5))
def test_death_between_the_final_runs_loses_none_and_doubles_none(written: int) -> None:
    desk = Desk(max_trials=1)
    desk.plan(1)
    desk.end(0)
    desk.failing_after = len(desk.events) + written  # the phase comes first
    with pytest.raises(StoreError):
        desk.plan(1)
    desk.failing_after = None
    desk.plan(1)
    finals = [(t.trial.purpose, t.trial.training_seed) for t in desk.state.of(Purpose.FINAL, Purpose.RECIPE)]
    assert desk.state.phase is Phase.FINAL
    assert sorted(finals) == [(p, seed) for p in (Purpose.FINAL, Purpose.RECIPE) for seed in (1, 2)]


@pytest.mark.parametrize("limit", [{"max_hours": 1 / 3600}, {"max_job_hours": 100 / 3600}])
def test_limits_of_time_end_the_search(limit: dict[str, Any]) -> None:
    desk = Desk(max_trials=None, **limit)
    desk.plan(1)
    desk.end(0)
    desk.plan(1)
    assert desk.state.phase is Phase.FINAL
    assert "hours" in desk.state.phase_reason


def test_method_without_further_questions_ends_the_search() -> None:
    desk = Desk()
    desk.dry = True
    desk.plan(2)
    assert desk.state.phase is Phase.FINAL
    assert "nothing more to ask" in desk.state.phase_reason


def test_study_whose_first_trials_all_fail_before_a_step_is_stopped() -> None:
    """P52: the environment is broken, not the configurations."""
    desk = Desk()
    desk.plan(HOPELESS)
    for number in range(HOPELESS):
        desk.end(number, Cause.FAILED, step=0)
    desk.plan(1)
    assert desk.state.phase is Phase.STOPPED
    assert "boom" in desk.state.phase_reason


def test_failures_after_training_steps_are_configurations_own() -> None:
    desk = Desk()
    desk.plan(HOPELESS)
    for number in range(HOPELESS):
        desk.end(number, Cause.FAILED, step=3)
    desk.plan(1)
    assert desk.state.phase is Phase.SEARCH


def test_a_resume_after_a_broken_environment_tries_again() -> None:
    desk = Desk(max_trials=8)
    desk.plan(HOPELESS)
    for number in range(HOPELESS):
        desk.end(number, Cause.FAILED, step=0)
    desk.plan(1)
    assert desk.state.phase is Phase.STOPPED
    desk.emit("controller", generation=2)
    desk.emit("phase", phase=Phase.SEARCH, reason="resumed")
    desk.plan(HOPELESS)
    assert desk.state.phase is Phase.SEARCH
    assert len(desk.state.trials) == 2 * HOPELESS
    for number in range(HOPELESS, 2 * HOPELESS):
        desk.end(number, Cause.FAILED, step=0)
    desk.plan(1)
    assert desk.state.phase is Phase.STOPPED


def test_a_failed_search_stops_nothing_while_trials_run() -> None:
    desk = Desk()
    desk.plan(2)
    desk.end(0)
    desk.fault = HpcjfError("the search failed: killed")
    for _ in range(3):
        desk.plan(1)
    assert desk.state.phase is Phase.SEARCH
    assert len(desk.state.notes) == 1, "asked once until a trial ends"
    desk.fault = None
    desk.end(1)
    desk.plan(2)
    assert len(desk.state.trials) == 4


@pytest.mark.parametrize("trials", [2, 4])
def test_a_failed_search_stops_the_study_when_nothing_runs(trials: int) -> None:
    """Also where all trials have ended and only the winner is asked for; a resume asks again."""
    desk = Desk(max_trials=4)
    desk.plan(trials)
    for number in range(trials):
        desk.end(number)
    desk.fault = HpcjfError("the search failed: killed")
    desk.plan(1)
    assert desk.state.phase is Phase.STOPPED
    assert "killed" in desk.state.phase_reason
