from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis import curves, figures
from hpcjf.analysis.compare import compare
from hpcjf.analysis.curves import final_curves, search_curves
from hpcjf.analysis.load import RunData, load_run
from hpcjf.analysis.timeline import job_timeline
from hpcjf.types import Cause, Config

WINNER: Config = RECIPE | {"learning_rate": 1e-5, "lr_scheduler": "cosine"}


def loaded(run: RunBuilder) -> RunData:
    return load_run(run.layout.root)


def named(fig: Any, name: str) -> Any:
    return next(trace for trace in fig.data if trace.name == name)


def test_history_marks_outcomes_and_steps_the_incumbent(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.incumbent(3600, RECIPE, 0.4)
    failed = run.trial(RECIPE, "small", 10, 100)
    run.submit(failed)
    run.end(failed, 3600, 0, cause=Cause.OUT_OF_MEMORY)
    stopped = run.trial(WINNER, "small", 90, 100)
    run.submit(stopped)
    run.end(stopped, 7200, 12, score=0.3, cause=Cause.STOPPED_REWARD)
    run.incumbent(7200, WINNER, 0.5)
    fig = figures.incumbent_history(loaded(run))
    assert named(fig, "small, budget reached").marker.symbol == "circle"
    assert named(fig, "small, stopped early").marker.symbol == "x"
    assert list(named(fig, "small, stopped early").x) == [2.0]
    floor = named(fig, "small, failed or cut off")
    assert floor.marker.symbol == "triangle-down"
    assert floor.y[0] < 0.3
    assert "no score" in floor.text[0]
    assert list(named(fig, "incumbent").x) == [1.0, 2.0, 2.0]
    assert list(named(fig, "incumbent").y) == [0.4, 0.5, 0.5]
    by_trials = fig.layout.updatemenus[0].buttons[1].args[0]["x"]
    assert [list(x) for x in by_trials] == [[1], [3], [2], [2, 3, 3]]


def test_history_without_any_score(run: RunBuilder) -> None:
    failed = run.trial(RECIPE, "small", 10)
    run.submit(failed)
    run.end(failed, 10, 0, cause=Cause.FAILED)
    assert len(figures.incumbent_history(loaded(run)).data) == 1


def test_parallel_coordinates_hold_one_budget_at_a_time(run: RunBuilder) -> None:
    for number in range(3):
        run.job(RECIPE | {"learning_rate": 10.0 ** (number - 6)}, "small", 10, 0, gain=0.1 * number)
    for number in range(2):
        run.job(RECIPE | {"learning_rate": 10.0 ** (number - 6)}, "small", 30, 0, start=10)
    fig = figures.parallel_coordinates(loaded(run))
    assert [trace.visible for trace in fig.data] == [True, False]
    assert [button.label for button in fig.layout.updatemenus[0].buttons] == [
        "small, 10 steps (3)",
        "small, 30 steps (2)",
    ]
    rate, score = fig.data[0].dimensions
    assert (rate.label, score.label) == ("learning_rate", "score")
    np.testing.assert_allclose(rate["values"], [-6, -5, -4])
    assert rate.ticktext[0] == "1e-06"
    np.testing.assert_allclose(fig.data[0].line.color, score["values"])


def test_stopped_trials_make_no_budget_of_their_own(run: RunBuilder) -> None:
    for rollouts in (4, 8):
        trial = run.trial(RECIPE | {"rollouts": rollouts}, "small", 90)
        run.submit(trial)
        run.end(trial, 9, 12, score=0.3, cause=Cause.STOPPED_KL)
    assert figures.parallel_coordinates(loaded(run)) is None


def test_parallel_coordinates_number_categories(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.job(RECIPE | {"lr_scheduler": "cosine"}, "small", 10, 0)
    axis = figures.parallel_coordinates(loaded(run)).data[0].dimensions[0]
    assert (list(axis["values"]), list(axis.ticktext)) == ([0, 1], ["constant", "cosine"])


def test_one_configuration_has_no_parallel_coordinates(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    assert figures.parallel_coordinates(loaded(run)) is None
    assert figures.hyperparameters(loaded(run)) is None


def test_a_panel_for_each_varied_hyperparameter(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.job(WINNER, "small", 30, 0)
    run.job(WINNER, "large", 90, 0)
    fig = figures.hyperparameters(loaded(run))
    axes = [axis for axis in (fig.layout.xaxis, fig.layout.xaxis2) if axis.title.text]
    assert {axis.title.text: axis.type for axis in axes} == {"learning_rate": "log", "lr_scheduler": "category"}
    small, large = (next(trace for trace in fig.data if trace.name == name) for name in ("small", "large"))
    assert small.marker.color != large.marker.color
    assert small.marker.size[0] < small.marker.size[1] < large.marker.size[0]
    assert [trace.name for trace in fig.data if trace.showlegend] == ["small", "large"]


def test_bars_carry_the_interval(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [1, 0, 0, 1], base=[0, 0, 0, 1])
    run.final(WINNER, "final", 1, 0, [1, 1, 0, 1])
    result = compare(loaded(run))
    fig = figures.final_scores(result)
    assert [bar.y[0] for bar in fig.data] == ["base model", "recipe", "winner"]
    assert [bar.x[0] for bar in fig.data] == [0.25, 0.5, 0.75]
    assert result.winner is not None
    bar = fig.data[2].error_x
    assert bar.array[0] == pytest.approx(result.winner.high - 0.75)
    assert bar.arrayminus[0] == pytest.approx(0.75 - result.winner.low)


def test_bars_show_single_seeds(run: RunBuilder) -> None:
    for seed, test in ((1, [1, 0]), (2, [1, 1])):
        run.final(RECIPE, "recipe", seed, 0, test)
    marks = figures.final_scores(compare(loaded(run))).data[1]
    assert list(marks.x) == [0.5, 1.0]


def test_curves_group_by_configuration_over_three_panels(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.job(RECIPE, "small", 30, 100, start=10)
    run.job(WINNER, "small", 10, 0)
    found = search_curves(loaded(run))
    assert found is not None
    data = found.figure.data
    assert len({trace.legendgroup for trace in data}) == 2
    assert [trace.name for trace in data if trace.showlegend] == [
        f"{loaded(run).state.trials[0].trial.config_id[:8]} · trial 0, 1",
        f"{loaded(run).state.trials[2].trial.config_id[:8]} · trial 2",
    ]
    assert {trace.yaxis for trace in data} == {"y", "y2", "y3"}
    assert found.left_out == ""
    resumed = [trace for trace in data if "resumed after step 10" in (trace.hovertemplate or "")]
    assert [trace.marker.symbol for trace in resumed] == ["circle-open"] * 2
    assert [trace.x[0] for trace in resumed] == [11, 11]


def test_curves_mark_a_stop_with_its_reason(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 90)
    run.submit(trial)
    run.trace(trial, 0, 17)
    run.stopping(trial, 5, Cause.STOPPED_KL, "KL grew")
    run.end(trial, 9, 17, cause=Cause.STOPPED_KL)
    found = search_curves(loaded(run))
    assert found is not None
    marks = [trace for trace in found.figure.data if trace.mode == "markers"]
    assert {mark.marker.symbol for mark in marks} == {"x"}
    assert {mark.x[0] for mark in marks} == {17}
    assert "trial 0 stopped at step 17: KL grew" in marks[0].hovertemplate


def test_hover_names_trial_and_configuration(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    found = search_curves(loaded(run))
    assert found is not None
    assert "<b>trial 0</b>, attempt 1, seed 1" in found.figure.data[0].hovertemplate
    assert "learning_rate 1e-06" in found.figure.data[0].hovertemplate


def test_long_traces_are_thinned_and_keep_their_ends(run: RunBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_POINTS", 7)
    run.job(RECIPE, "small", 90, 0)
    found = search_curves(loaded(run))
    assert found is not None
    steps = found.figure.data[0].x
    assert (len(steps), steps[0], steps[-1]) == (7, 1, 90)


@pytest.mark.parametrize(("direction", "best"), [("maximize", 1), ("minimize", 0)])
def test_many_configurations_leave_the_best_and_the_latest(
    run: RunBuilder, monkeypatch: pytest.MonkeyPatch, direction: str, best: int
) -> None:
    monkeypatch.setattr(curves, "MOST_CONFIGURATIONS", 2)
    gains = (0.1, 0.9, 0.4, 0.5)
    for number, gain in enumerate(gains):
        run.job(RECIPE | {"rollouts": 2 + number}, "small", 10, 0, gain=gain)
    data = loaded(run)
    study = data.study.model_copy(update={"study": data.study.study.model_copy(update={"direction": direction})})
    found = search_curves(RunData(data.root, study, data.state, data.traces, data.results, ()))
    assert found is not None
    shown = [trace.legendgroup for trace in found.figure.data if trace.showlegend]
    assert shown == [data.state.trials[number].trial.config_id for number in (best, 3)]
    assert found.left_out.startswith("Of 4 configurations with a trace only 2 are drawn: the 1 with the best score")


def test_final_curves_hold_the_finals_alone(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    assert final_curves(loaded(run)) is None
    for seed in (1, 2):
        run.final(RECIPE, "recipe", seed, 0, [0.4])
    run.final(WINNER, "final", 1, 0, [0.6])
    found = final_curves(loaded(run))
    assert found is not None
    assert [trace.name for trace in found.figure.data if trace.showlegend] == ["recipe (2 seeds)", "winner (1 seed)"]


def test_the_timeline_parts_a_jobs_time(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial, 0, started=360)
    run.end(trial, 7200, 10, seconds=3600, startup=3240)
    queue, startup, training = job_timeline(loaded(run)).data
    assert (queue.base[0], queue.x[0]) == pytest.approx((0, 0.1))
    assert (startup.base[0], startup.x[0]) == pytest.approx((0.1, 0.9))
    assert (training.base[0], training.x[0]) == pytest.approx((1, 1))
    assert "completed at step 10" in training.customdata[0]


def test_the_timeline_trusts_a_jobs_own_seconds_where_its_start_was_seen_late(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial, 0, started=7000)
    run.end(trial, 7200, 10, seconds=3600, startup=1800)
    queue, startup, training = job_timeline(loaded(run)).data
    assert (queue.x[0], startup.x[0], training.x[0]) == pytest.approx((0.5, 0.5, 1))


def test_the_timeline_shows_jobs_in_flight_up_to_the_last_word(run: RunBuilder) -> None:
    waiting, training = run.trial(RECIPE, "small", 10), run.trial(RECIPE, "small", 10)
    run.submit(waiting, 0)
    run.submit(training, 0, started=1800)
    run.event("note", 3600, text="tick")
    bars = job_timeline(loaded(run)).data
    by_trial = {
        text.split("</b>")[0]: tuple(bar.x[place] for bar in bars) for place, text in enumerate(bars[0].customdata)
    }
    assert by_trial == {"<b>trial 0": (1.0, 0.0, 0.0), "<b>trial 1": (0.5, 0.0, 0.5)}
    assert "still in flight" in bars[0].customdata[0]


def test_the_timeline_packs_jobs_into_slots(run: RunBuilder) -> None:
    for begin, end in ((0, 100), (10, 50), (60, 90), (100, 120)):
        trial = run.trial(RECIPE, "small", 10)
        run.submit(trial, begin)
        run.end(trial, end, 10, seconds=10, startup=0)
    assert list(job_timeline(loaded(run)).data[0].y) == [1, 2, 2, 1]


def test_a_job_that_was_never_submitted_is_not_on_the_timeline(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.event("attempt", 0, trial=trial, attempt=1, name="x")
    assert job_timeline(loaded(run)) is None
