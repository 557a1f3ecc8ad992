from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import RunData, load_run
from hpcjf.analysis.pareto import by_model, trade_off
from hpcjf.analysis.tables import front_table
from hpcjf.types import Cause


def loaded(run: RunBuilder) -> RunData:
    return load_run(run.layout.root)


def scored(run: RunBuilder, model: str, score: float | None, kl: float | None, **changes: object) -> int:
    trial = run.trial(RECIPE | {"rollouts": 2 + run.trials}, model, 10)
    run.submit(trial)
    run.end(trial, 1, 10, score=score, kl=kl, **changes)
    return trial


def front(run: RunBuilder, model: str = "large") -> list[tuple[float, float]]:
    return [(each.kl, each.score) for each in by_model(loaded(run))[model] if each.front]


def test_the_front_is_what_nothing_beats_in_both(run: RunBuilder) -> None:
    for score, kl in [
        (0.5, 0.3),
        (0.2, 0.1),
        (0.4, 0.2),
        (0.3, 0.2),
        (0.4, 0.25),
        (0.1, 0.05),
        (0.5, 0.3),
        (0.45, 0.5),
    ]:
        scored(run, "large", score, kl)
    assert front(run) == [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.3, 0.5), (0.3, 0.5)]


def test_it_agrees_with_the_definition(run: RunBuilder) -> None:
    points = np.random.default_rng(0).integers(0, 6, size=(40, 2)) / 10
    for kl, score in points:
        scored(run, "large", float(score), float(kl))
    kept = [
        (kl, score)
        for kl, score in points.tolist()
        if not any((k <= kl and s >= score) and (k < kl or s > score) for k, s in points.tolist())
    ]
    assert front(run) == sorted(kept)


def test_where_less_is_better_the_front_turns(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", {"study": {"name": "demo", "direction": "minimize"}})
    for score, kl in [(0.5, 0.3), (0.2, 0.1), (0.1, 0.2)]:
        scored(run, "large", score, kl)
    assert front(run) == [(0.1, 0.2), (0.2, 0.1)]


def test_models_have_fronts_of_their_own_and_the_target_comes_first(run: RunBuilder) -> None:
    for model, score, kl in [("small", 0.9, 0.1), ("large", 0.2, 0.3), ("small", 0.8, 0.2), ("large", 0.1, 0.4)]:
        scored(run, model, score, kl)
    assert list(by_model(loaded(run))) == ["large", "small"]
    assert front(run, "small") == [(0.1, 0.9)]
    assert front(run, "large") == [(0.3, 0.2)]


def test_a_journal_without_kl_takes_the_end_of_the_trace(run: RunBuilder) -> None:
    trial = run.job(RECIPE, "large", 30, 0)
    scored(run, "large", 0.2, 9.0)
    rows = loaded(run).traces[trial, 1]["kl"]
    found = by_model(loaded(run))["large"][0]
    assert found.kl == pytest.approx(float(np.mean(rows[-5:])))
    assert found.kl != pytest.approx(float(rows[-1]))


@pytest.mark.parametrize(("score", "kl"), [(None, 0.1), (0.5, None)])
def test_a_trial_without_one_of_the_two_is_left_out(run: RunBuilder, score: float | None, kl: float | None) -> None:
    scored(run, "large", score, kl)
    scored(run, "large", 0.5, 0.1)
    assert by_model(loaded(run)) == {}, "one trial is no trade-off"
    assert trade_off(loaded(run)) is None


@pytest.fixture
def ceiling(tmp_path: Path) -> RunBuilder:
    run = RunBuilder(tmp_path / "run", {"search": {"max_trials": 24, "kl_ceiling": 0.25}})
    for score, kl in [(0.5, 0.3), (0.2, 0.1), (0.4, 0.25)]:
        scored(run, "large", score, kl)
    for kl in (0.4, 0.5):
        scored(run, "small", 0.1, kl, cause=Cause.STOPPED_KL)
    return run


def test_what_is_over_the_ceiling_is_marked(ceiling: RunBuilder) -> None:
    large = by_model(loaded(ceiling))["large"]
    assert [(each.kl, each.beyond) for each in large] == [(0.1, False), (0.25, False), (0.3, True)]
    words, head, rows = front_table("large", large)
    assert words == "On large 3 of 3 trials are on the front; 1 of all are over the ceiling."
    assert head[-3:] == ["steps", "score", "KL, nats/token"]
    assert [row[-1].text for row in rows] == ["0.1", "0.25", "0.3"]
    assert [row[-1].kind for row in rows] == ["number", "number", "number bad"]


def test_the_figure_draws_the_ceiling_and_a_button_for_each_model(ceiling: RunBuilder) -> None:
    fig = trade_off(loaded(ceiling))
    assert fig is not None
    names = [trace.name for trace in fig.data]
    assert names == ["trials", "over the ceiling", "front", "ceiling 0.25", "over the ceiling", "front", "ceiling 0.25"]
    assert [trace.visible for trace in fig.data] == [True] * 4 + [False] * 3
    large, small = fig.layout.updatemenus[0].buttons
    assert (large.label, small.label) == ("large", "small")
    assert small.args[0]["visible"] == [False] * 4 + [True] * 3
    assert list(fig.data[3].x) == [0.25, 0.25]
    assert list(fig.data[4].marker.symbol) == ["x", "x"]


def test_without_a_ceiling_the_front_is_drawn_as_well(run: RunBuilder) -> None:
    for score, kl in [(0.2, 0.3), (0.1, 0.4)]:
        scored(run, "large", score, kl)
    fig = trade_off(loaded(run))
    assert fig is not None
    assert [trace.name for trace in fig.data] == ["trials", "front"]
    assert not fig.layout.updatemenus
    assert front_table("large", by_model(loaded(run))["large"])[0] == "On large 1 of 2 trials are on the front."
