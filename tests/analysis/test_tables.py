from __future__ import annotations

import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import load_run
from hpcjf.analysis.tables import Cell, trial_table
from hpcjf.analysis.words import clock, duration, score_text, text_of
from hpcjf.types import Cause, Scalar


def row(run: RunBuilder, trial: int) -> dict[str, Cell]:
    heads, rows = trial_table(load_run(run.layout.root))
    return dict(zip(heads, rows[trial], strict=True))


def test_a_trial_over_two_attempts(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 30, seed=4)
    run.submit(trial)
    run.end(trial, 1, 17, start=10, cause=Cause.PREEMPTED, seconds=60, startup=30, retry=True, detail="preempted")
    run.submit(trial)
    run.end(trial, 2, 30, start=15, score=0.5, seconds=120, startup=30)
    cells = row(run, trial)
    assert cells["steps"].text == "10 → 30 / 30"
    assert cells["score"] == Cell("0.500", 0.5, "number")
    assert cells["job min"] == Cell("4.0", 4.0, "number")
    assert cells["attempts"].key == 2
    assert cells["ended"] == Cell("completed", "completed", "cause good")
    assert cells["why"].text == ""
    assert (cells["model"].text, cells["seed"].key, cells["for"].text) == ("small", 4, "search")
    assert (cells["learning_rate"].text, cells["learning_rate"].key) == ("1e-06", 1e-6)


def test_why_a_trial_ended(run: RunBuilder) -> None:
    stopped, failed = run.trial(RECIPE, "small", 30), run.trial(RECIPE, "small", 30)
    run.submit(stopped)
    run.stopping(stopped, 1, Cause.STOPPED_REWARD, "reward fell")
    run.end(stopped, 2, 12, cause=Cause.STOPPED_REWARD, detail="stopped on request")
    run.submit(failed)
    run.end(failed, 2, 0, cause=Cause.FAILED, detail="KeyError: 'x'")
    assert row(run, stopped)["why"].text == "reward fell"
    assert row(run, stopped)["ended"].kind == "cause stopped"
    assert row(run, failed)["why"].text == "KeyError: 'x'"
    assert row(run, failed)["ended"].kind == "cause bad"


def test_open_trials(run: RunBuilder) -> None:
    waiting, running = run.trial(RECIPE, "small", 30), run.trial(RECIPE, "small", 30)
    run.submit(running)
    assert row(run, waiting)["ended"].text == "waiting"
    assert row(run, running)["ended"].text == "running"
    assert row(run, running)["score"] == Cell("–", "", "number")


def test_a_hyperparameter_that_a_trial_lacks_is_a_dash(run: RunBuilder) -> None:
    run.trial({"a": 1}, "small", 10)
    run.trial({"b": "x"}, "small", 10)
    assert row(run, 0)["b"] == Cell("–", "")
    assert row(run, 1)["b"].text == "x"


@pytest.mark.parametrize(
    ("value", "text"), [(1e-6, "1e-06"), (0.123456, "0.1235"), (5, "5"), (True, "True"), ("x", "x"), (None, "–")]
)
def test_values_as_text(value: Scalar | None, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("score", "sign", "text"),
    [(0.5, "", "0.500"), (0.05, "+", "+0.050"), (-0.05, "+", "-0.050"), (1234.56, "", "1235"), (None, "", "–")],
)
def test_scores_as_text(score: float | None, sign: str, text: str) -> None:
    assert score_text(score, sign) == text


@pytest.mark.parametrize(("seconds", "text"), [(None, "–"), (5, "5 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_as_text(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_times_are_utc() -> None:
    assert clock(0) == "1970-01-01 00:00 UTC"
