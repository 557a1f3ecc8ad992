from __future__ import annotations

import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import load_run
from hpcjf.analysis.savings import Savings, savings
from hpcjf.types import Cause, Config

OTHER: Config = RECIPE | {"rollouts": 8}


def saved(run: RunBuilder) -> Savings:
    data = load_run(run.layout.root)
    return savings(data.state, data.study)


def ended(
    run: RunBuilder, config: Config, steps: int, step: int, *, start: int = 0, cause: Cause = Cause.COMPLETED,
    model: str = "small", purpose: str = "search", seconds: float = 100.0,
) -> int:  # fmt: skip
    """A trial of one attempt; start-up is 20 s."""
    trial = run.trial(config, model, steps, purpose=purpose)
    run.submit(trial)
    run.end(trial, 1, step, start=start, cause=cause, seconds=seconds)
    return trial


def test_an_empty_run_saved_nothing(run: RunBuilder) -> None:
    found = saved(run)
    assert (found.run_steps, found.resumed_steps, found.stopped_steps, found.configurations) == (0, 0, 0, 0)
    assert found.seconds_per_configuration is found.mean_job_seconds is found.saved_share is None
    assert found.costs == ()
    assert found.hours == 0


def test_steps_spared_by_resuming(run: RunBuilder) -> None:
    ended(run, RECIPE, 10, 10)
    ended(run, RECIPE, 30, 30, start=10)
    ended(run, RECIPE, 90, 90, start=30)
    found = saved(run)
    assert (found.resumed_steps, found.resumed_trials, found.run_steps) == (40, 2, 90)
    assert found.saved_share == pytest.approx(40 / 130)


def test_only_the_first_attempt_counts_as_resumed_and_later_ones_may_redo(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 30)
    run.submit(trial)
    run.end(trial, 1, 17, start=10, cause=Cause.PREEMPTED, retry=True)
    run.submit(trial)
    run.end(trial, 2, 30, start=15)
    found = saved(run)
    assert (found.resumed_steps, found.resumed_trials) == (10, 1)
    assert found.redone_steps == 2
    assert found.run_steps == 7 + 15
    assert found.lost_steps == 0


def test_steps_spared_by_stopping(run: RunBuilder) -> None:
    ended(run, RECIPE, 90, 17, cause=Cause.STOPPED_KL)
    ended(run, OTHER, 30, 12, cause=Cause.STOPPED_REWARD)
    ended(run, OTHER, 90, 5, cause=Cause.DIVERGED)
    found = saved(run)
    assert (found.stopped_steps, found.stopped_trials) == (73 + 18, 2)


def test_steps_of_trials_that_a_fault_ended_are_lost(run: RunBuilder) -> None:
    ended(run, RECIPE, 30, 12, start=10, cause=Cause.OUT_OF_MEMORY)
    ended(run, OTHER, 30, 7, cause=Cause.NODE_FAILURE)
    ended(run, OTHER, 30, 30)
    assert saved(run).lost_steps == 2 + 7


def test_time_per_configuration_is_all_cost_over_distinct_ones_that_count(run: RunBuilder) -> None:
    ended(run, RECIPE, 10, 10)
    ended(run, RECIPE, 30, 30, start=10)
    ended(run, OTHER, 90, 4, cause=Cause.STOPPED_REWARD)
    ended(run, RECIPE | {"rollouts": 3}, 10, 2, cause=Cause.FAILED)
    found = saved(run)
    assert found.configurations == 2
    assert found.seconds_per_configuration == pytest.approx(4 * 120 / 2)
    assert found.mean_job_seconds == pytest.approx(120)


def test_a_stop_just_below_the_lowest_budget_counts_and_a_running_trial_does_not(run: RunBuilder) -> None:
    run.submit(run.trial(RECIPE, "small", 10))
    ended(run, OTHER, 10, 9, cause=Cause.FAILED)
    assert saved(run).configurations == 0
    ended(run, OTHER, 10, 9, cause=Cause.STOPPED_KL)
    assert saved(run).configurations == 1


def test_costs_by_model_and_part(run: RunBuilder) -> None:
    ended(run, RECIPE, 10, 10, seconds=3600)
    ended(run, RECIPE, 30, 30, start=10, seconds=1800)
    ended(run, RECIPE, 90, 90, model="large", purpose="recipe", seconds=7200)
    ended(run, OTHER, 90, 90, model="large", purpose="final", seconds=7200)
    found = saved(run)
    rows = [(cost.model, cost.part, cost.jobs, cost.steps, cost.seconds, cost.startup_seconds) for cost in found.costs]
    assert rows == [("small", "search", 2, 30, 5400, 40), ("large", "final comparison", 2, 180, 14400, 40)]
    assert found.hours == pytest.approx((5400 + 14400 + 80) / 3600)


def test_the_finals_do_not_enter_the_savings(run: RunBuilder) -> None:
    ended(run, RECIPE, 90, 90, start=30, model="large", purpose="final")
    found = saved(run)
    assert (found.resumed_steps, found.run_steps, found.configurations) == (0, 0, 0)
