"""``search.deterministic``: the same study whatever the cluster's pace and accidents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from controller.farm import Farm

from hpcjf.core.lifecycle import TrialState
from hpcjf.types import Cause, Observation, Purpose

SEARCH = {"deterministic": True, "parallel": 3, "max_trials": 10, "initial": 3}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here: controllers that die leave what they wrote in the page cache."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def lived(root: Path, seed: int, slots: int | None = None, restarts: float = 0.0, **search: Any) -> Farm:
    farm = Farm(root, seed, slots, **SEARCH | search)
    farm.live(restarts)
    return farm


def searched(farm: Farm) -> list[TrialState]:
    return farm.bench.controller.state.of(Purpose.SEARCH)


def counted(farm: Farm) -> list[Observation | None]:
    return [known.in_work(1.0) for known in searched(farm)]


@pytest.mark.parametrize("method", ["jfhpo", "random", "sha", "bohb"])
def test_a_study_is_the_same_in_any_order_at_any_pace_and_after_any_death(method: str, tmp_path: Path) -> None:
    """Trials with their figures, and the final runs' configurations, bit for bit."""
    first = lived(tmp_path / "0", 0, method=method)
    others = [
        lived(tmp_path / str(seed), seed, slots, restarts, method=method)
        for seed, slots, restarts in [(1, None, 0.0), (2, 2, 0.0), (3, None, 0.3), (4, 1, 0.5)]
    ]
    assert len(first.trials()) > SEARCH["max_trials"], "the final runs are among them"
    for other in others:
        assert other.trials() == first.trials()
        assert counted(other) == counted(first)
    farms = [first, *others]
    assert len({tuple(farm.bench.controller.state.over) for farm in farms}) > 2, "the order never changed"
    assert any(len(known.attempts) > 1 for farm in farms for known in searched(farm)), "no job was lost"
    late = [known.attempts[-1].ending for farm in farms for known in searched(farm) if known.cause is not None]
    assert any("the job completed" in ending.detail for ending in late if ending), "no rule fired unseen"
    assert {Cause.COMPLETED, Cause.STOPPED_REWARD} <= {known.cause for known in searched(first)}


def test_without_it_the_order_matters(tmp_path: Path) -> None:
    farms = [lived(tmp_path / str(seed), seed, method="jfhpo", deterministic=False) for seed in range(2)]
    assert farms[0].trials() != farms[1].trials()
    assert all("told" not in trial["why"] for trial in farms[0].trials())


def test_a_trial_is_asked_for_with_what_its_place_in_the_window_tells(tmp_path: Path) -> None:
    """Also where the executor has fewer slots than the window."""
    trials = lived(tmp_path / "0", 0, slots=1, method="random").trials()[: SEARCH["max_trials"]]
    assert [trial["why"]["told"] for trial in trials] == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]
