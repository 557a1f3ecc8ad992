"""What the searcher hears, in which order, and the process that it lives in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcjf.controller import ask as module
from hpcjf.controller.ask import Asker, problem_of
from hpcjf.controller.earlier import Earlier
from hpcjf.core.identity import config_id
from hpcjf.core.lifecycle import StudyState
from hpcjf.core.searchers.base import Pending
from hpcjf.store.frozen import freeze_study
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.types import Cause, Fidelity, Observation, Proposal, Purpose

RAW: dict[str, Any] = {
    "models": [{"name": "s", "path": "s", "parameters": 100}, {"name": "m", "path": "m", "parameters": 400}],
    "recipe": {"learning_rate": 1e-4, "rollouts": 5},
    "space": {
        "learning_rate": {"type": "real", "low": 1e-6, "high": 1e-2, "log": True},
        "rollouts": {"type": "integer", "low": 2, "high": 8},
    },
    "budget": {"min": 10, "max": 40, "eta": 2},
}


def study(**search: Any) -> Study:
    return Study.model_validate({**RAW, "search": {"max_trials": 20, "method": "random", **search}})


class Events:
    """A journal in memory."""

    def __init__(self) -> None:
        self.state = StudyState()
        self.all: list[dict[str, Any]] = []

    def emit(self, kind: str, **fields: Any) -> None:
        self.all.append({"kind": kind, "time": float(len(self.all)), **fields})
        self.state.apply(self.all[-1])

    def add(self, proposal: Proposal, purpose: Purpose = Purpose.SEARCH) -> int:
        number = self.state.next_number
        where, same = (
            proposal.fidelity,
            {"config_id": config_id(proposal.config), "training_seed": 0, "purpose": purpose},
        )
        config, why = dict(proposal.config), dict(proposal.why)
        self.emit("trial", number=number, config=config, model=where.model, steps=where.steps, why=why, **same)
        self.emit("attempt", trial=number, attempt=1, name=f"a{number}")
        return number

    def end(self, number: int, score: float = 0.5, cause: Cause = Cause.COMPLETED, retry: bool = False) -> None:
        figures = {"step": 40, "start_step": 10, "seconds": 7.0, "startup_seconds": 3.0, "kl": 0.1, "tokens": 20.0}
        end = {"trial": number, "attempt": 1, "cause": cause, "score": score, "detail": "", "retry": retry}
        self.emit("ended", **end, **figures)


class Listener:
    """A searcher that writes down what it hears. ``needs``: how many trials it must know of to ask for one."""

    def __init__(self, needs: Mapping[int, int]) -> None:
        self.needs = needs
        self.told: list[Observation] = []
        self.asked: list[tuple[int, list[int], list[float]]] = []

    def tell(self, observation: Observation) -> None:
        self.told.append(observation)

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        known = [o.trial for o in self.told]
        self.asked.append((number, known, [float(p.config["learning_rate"]) for p in pending]))
        if len(self.told) < self.needs.get(number, 0):
            return None
        return Proposal({"learning_rate": 1e-5 * (number + 1), "rollouts": 2}, Fidelity("s", 10), {"reason": "test"})

    def best(self) -> dict[str, float]:
        return {"learning_rate": float(len(self.told))}


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Askers whose searcher is a Listener: ``listen(needs, **search)``."""

    def made(needs: Mapping[int, int] | None = None, **search: Any) -> tuple[Asker, Listener]:
        listener = Listener(needs or {})
        monkeypatch.setattr(module, "make_searcher", lambda method, problem: listener)
        return Asker(study(**search)), listener

    return made


def proposal(number: int) -> Proposal:
    return Proposal({"learning_rate": 1e-5 * (number + 1), "rollouts": 2}, Fidelity("s", 40))


def test_the_study_reaches_the_problem() -> None:
    given = study(kl_ceiling=0.5, acquisition="paper", configurations=[{"rollouts": 3}], initial=2)
    problem = problem_of(given)
    assert problem.given == ({"learning_rate": 1e-4, "rollouts": 3},)
    assert (problem.kl_ceiling, problem.acquisition, problem.eta, problem.initial) == (0.5, "paper", 2, 2)
    assert [(model.name, model.parameters) for model in problem.models] == [("s", 100), ("m", 400)]
    assert problem.earlier == problem.earlier_models == ()


def test_an_earlier_run_reaches_the_problem() -> None:
    seen = Observation(
        3, "c", {"learning_rate": 1e-3, "rollouts": 2}, Fidelity("s-earlier", 10), 0.5, Cause.COMPLETED, 0, 1, 1
    )
    problem = problem_of(study(), Earlier(run_id="r", models={"s-earlier": 99}, observations=(seen,)))
    assert problem.earlier == (seen,)
    assert [(model.name, model.parameters) for model in problem.earlier_models] == [("s-earlier", 99)]


def test_trials_are_told_once_in_the_order_of_their_ends_to_a_searcher_that_stays_and_to_a_new_one(listen: Any) -> None:
    events = Events()
    stays, heard = listen()
    for number in range(4):
        events.add(proposal(number))
    for number in (2, 0, 3):
        events.end(number, cause=Cause.COMPLETED if number else Cause.PREEMPTED)
        stays.answer(events.state, 1)
    fresh, all_at_once = listen()
    fresh.answer(events.state, 1)
    assert [o.trial for o in heard.told] == [2, 0, 3]
    assert heard.told == all_at_once.told
    assert heard.asked[-1] == all_at_once.asked[-1] == (4, [2, 0, 3], [pytest.approx(2e-5)])


def test_a_retried_trial_is_pending_and_a_final_run_is_neither_told_nor_pending(listen: Any) -> None:
    events = Events()
    asker, listener = listen()
    events.add(proposal(0))
    events.add(proposal(1), Purpose.FINAL)
    events.add(proposal(2), Purpose.RECIPE)
    events.end(0, cause=Cause.PREEMPTED, retry=True)
    events.end(1)
    asker.answer(events.state, 1)
    assert listener.asked == [(3, [], [pytest.approx(1e-5)])]


def test_proposals_of_one_answer_know_of_each_other(listen: Any) -> None:
    asker, listener = listen()
    answer = asker.answer(StudyState(), 3)
    assert len(answer.proposals) == 3
    assert [len(pending) for _, _, pending in listener.asked] == [0, 1, 2]


def test_best_knows_what_has_just_ended(listen: Any) -> None:
    events = Events()
    asker, _ = listen()
    events.add(proposal(0))
    assert asker.answer(events.state, 0).best == {"learning_rate": 0.0}
    events.end(0)
    assert asker.answer(events.state, 0).best == {"learning_rate": 1.0}


class TestDeterministic:
    def fill(self, asker: Asker, events: Events, count: int) -> None:
        for found in asker.answer(events.state, count).proposals:
            events.add(found)

    def test_a_trial_waits_for_those_that_left_its_window_and_hears_no_more(self, listen: Any) -> None:
        events = Events()
        asker, listener = listen(deterministic=True, parallel=2)
        self.fill(asker, events, 9)
        assert len(events.state.trials) == 2, "trial 2 needs trial 0"
        events.end(1)
        self.fill(asker, events, 1)
        assert len(events.state.trials) == 2
        events.end(0)
        self.fill(asker, events, 9)
        assert [known for _, known, _ in listener.asked] == [[], [], [0], [0, 1]]
        assert [len(pending) for _, _, pending in listener.asked] == [0, 1, 1, 1]
        assert [t.trial.why["told"] for t in events.state.trials.values()] == [0, 0, 1, 2]

    def test_a_method_that_waits_is_told_one_more_at_a_time_after_a_restart_too(self, listen: Any) -> None:
        stories = []
        for restarts in (False, True):
            events = Events()
            for number in range(3):
                events.add(Proposal(proposal(number).config, Fidelity("s", 40), {"told": 0}))
            asker, _ = listen({3: 3}, deterministic=True, parallel=3)
            for number in (0, 2, 1):
                events.end(number)
                if restarts:
                    asker, _ = listen({3: 3}, deterministic=True, parallel=3)
                self.fill(asker, events, 1)
            if restarts:
                asker, _ = listen({3: 3}, deterministic=True, parallel=3)
            self.fill(asker, events, 1)
            stories.append(events.state.trials)
        assert [t.trial.why.get("told") for t in stories[0].values()] == [0, 0, 0, 3, 3]
        assert stories[0] == stories[1]

    def test_costs_are_work(self, listen: Any) -> None:
        """30 steps of 20 tokens on a quarter of the target's parameters."""
        events = Events()
        asker, listener = listen(deterministic=True, parallel=1)
        events.add(proposal(0))
        events.end(0)
        asker.answer(events.state, 1)
        assert (listener.told[0].seconds, listener.told[0].startup_seconds) == (30 * 20 / 4, 0.0)

    def test_the_winner_is_chosen_by_all(self, listen: Any) -> None:
        events = Events()
        asker, _ = listen(deterministic=True, parallel=3)
        for number in range(3):
            events.add(proposal(number))
            events.end(number)
        assert asker.answer(events.state, 0).best == {"learning_rate": 3.0}


class TestProcess:
    @pytest.fixture
    def layout(self, tmp_path: Path) -> RunLayout:
        layout = RunLayout(tmp_path / "run")
        layout.create()
        freeze_study(layout, study())
        JournalWriter(layout.journal).close()
        return layout

    def start(self, layout: RunLayout, idle: float = 120.0) -> subprocess.Popen[str]:
        code = f"from hpcjf.controller import ask; ask.IDLE_SECONDS = {idle}; ask.main([{str(layout.root)!r}])"
        return subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1, text=True)

    def test_it_answers_until_stdin_closes_and_reads_on_where_it_was(self, layout: RunLayout) -> None:
        events = Events()
        with self.start(layout) as child, JournalWriter(layout.journal) as journal:
            assert child.stdin
            assert child.stdout
            firsts = []
            for _ in range(2):
                child.stdin.write('{"count": 2}\n')
                child.stdin.flush()
                answer = json.loads(child.stdout.readline())
                firsts.append(answer["proposals"][0])
                number = events.add(Proposal(firsts[-1]["config"], Fidelity("m", 40)))
                events.end(number)
                for event in events.all[-3:]:
                    journal.append(event)
            said, complaints = child.communicate(timeout=60)
        assert (said, child.returncode) == ("", 0), complaints
        assert firsts[0]["why"]["reason"] == "recipe"
        assert firsts[1]["why"]["reason"] != "recipe", "the second question knew of the first trial"

    def test_it_leaves_when_nobody_asks(self, layout: RunLayout) -> None:
        with self.start(layout, idle=0.1) as child:
            assert child.wait(timeout=60) == 0
