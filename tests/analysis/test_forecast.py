from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from hpcjf.analysis.forecast import MOST, Forecast, Pace, forecast
from hpcjf.core.searchers import ModelFidelity, Pending, SearchProblem, make_searcher
from hpcjf.core.space import Space
from hpcjf.study import Categorical, RealRange, SearchSection
from hpcjf.types import Config, Fidelity, Observation, Proposal

SPACE = Space({"x": RealRange(low=0.0, high=1.0), "k": Categorical(type="categorical", choices=(1, 2, 3))})
PACE = Pace({"s": 1.0, "m": 4.0}, {"s": 10.0, "m": 10.0}, {}, seconds=True)


def problem(**changes: Any) -> SearchProblem:
    models = (ModelFidelity("s", 100), ModelFidelity("m", 1000))
    given: dict[str, Any] = {"space": SPACE, "models": models, "rungs": (10, 30, 90), "recipe": {"x": 0.1, "k": 1}}
    return SearchProblem(**given | changes)


class Script:
    """Asks for what it is told to, one fidelity after the other; ``waits`` while a trial is in flight."""

    def __init__(self, fidelities: Sequence[Fidelity], same: bool = False, waits: bool = False) -> None:
        self.fidelities, self.same, self.waits = fidelities, same, waits
        self.told: list[Observation] = []

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if number >= len(self.fidelities) or (self.waits and pending):
            return None
        config: Config = {"x": 0.5 if self.same else number / len(self.fidelities), "k": 1}
        return Proposal(config, self.fidelities[number])

    def tell(self, observation: Observation) -> None:
        self.told.append(observation)

    def best(self) -> Config:
        return {}

    def describe(self) -> dict[str, float]:
        return {}


def run(script: Script, pace: Pace = PACE, **search: Any) -> Forecast:
    return forecast(problem(), script, SearchSection(**{"max_trials": 24, "parallel": 2} | search), pace)


def test_trials_end_in_the_order_of_their_costs() -> None:
    script = Script([Fidelity("m", 10), Fidelity("s", 10), Fidelity("s", 10)])
    found = run(script)
    assert [seen.trial for seen in script.told] == [1, 2, 0]
    assert (found.in_flight, found.elapsed) == (2, 50.0)
    assert found.limit == "the method itself, which has nothing more to ask"


def test_a_promotion_runs_only_what_is_left() -> None:
    script = Script([Fidelity("s", 10), Fidelity("s", 30), Fidelity("m", 30)], same=True, waits=True)
    found = run(script)
    assert [trial.steps for trial in found.trials] == [10, 20, 30]
    assert [(seen.start_step, seen.seconds) for seen in script.told] == [(0, 10.0), (10, 20.0), (0, 120.0)]
    assert found.in_flight == 1


def test_scores_favour_the_middle_and_the_budget_but_no_model() -> None:
    script = Script([Fidelity("s", 10), Fidelity("s", 90), Fidelity("m", 90)], same=True, waits=True)
    run(script)
    low, high, target = (seen.score for seen in script.told)
    assert low is not None
    assert high is not None
    assert low < high == target
    aside = Script([Fidelity("m", 90)])
    run(aside)
    assert aside.told[0].score is not None
    assert aside.told[0].score < high


def test_where_less_is_better_the_middle_scores_least() -> None:
    script = Script([Fidelity("m", 90)], same=True)
    forecast(problem(direction="minimize"), script, SearchSection(), PACE)
    assert script.told[0].score is not None
    assert script.told[0].score < 0


@pytest.mark.parametrize(
    ("search", "trials", "limit"),
    [
        ({"max_trials": 3}, 3, "max_trials, 3"),
        ({"max_trials": None, "max_hours": 90 / 3600}, 10, "max_hours, 0.025"),
        ({"max_trials": None, "max_job_hours": 100 / 3600}, 6, "max_job_hours, 0.0277778"),
    ],
)
def test_the_limits_of_a_study_end_it(search: dict[str, Any], trials: int, limit: str) -> None:
    found = run(Script([Fidelity("s", 10)] * 300), **search)
    assert (len(found.trials), found.limit) == (trials, limit)


def test_a_forecast_ends_by_itself() -> None:
    unknown = Pace(PACE.step, {"s": 0.0, "m": 0.0}, {}, seconds=False)
    found = run(Script([Fidelity("s", 10)] * 300), unknown, max_trials=None, max_hours=0.001)
    assert len(found.trials) == MOST
    assert found.limit == "this forecast, which ends at 200 trials"


@pytest.mark.parametrize(
    ("limit", "steps", "jobs", "cost"),
    [
        (math.inf, 90, 1, 370.0),
        (370.0, 90, 1, 370.0),
        (200.0, 90, 2, 380.0),
        (100.0, 90, 4, 400.0),
        (5.0, 90, 1, 370.0),
    ],
)
def test_a_wall_time_limit_cuts_a_trial_into_jobs(limit: float, steps: int, jobs: int, cost: float) -> None:
    pace = Pace(PACE.step, PACE.startup, {"m": limit}, seconds=True)
    assert (pace.jobs("m", steps), pace.cost("m", steps)) == (jobs, cost)


def test_without_seconds_no_limit_counts() -> None:
    assert Pace(PACE.step, PACE.startup, {"m": 100.0}, seconds=False).jobs("m", 90) == 1


@pytest.mark.parametrize("method", ["jfhpo", "recipe", "grid", "random", "sha", "hyperband", "asha", "bohb", "tpe"])
@pytest.mark.parametrize("ceiling", [None, 0.05])
def test_every_method_can_be_forecast(method: Any, ceiling: float | None) -> None:
    of = problem(max_trials=8, kl_ceiling=ceiling, initial=3)
    search = SearchSection(method=method, max_trials=8, parallel=3)
    found = forecast(of, make_searcher(method, of), search, PACE)
    assert len(found.trials) == (1 if method == "recipe" else 8)
    assert found == forecast(of, make_searcher(method, of), search, PACE), "not the same twice"
