"""What a search was worth, and how two are compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from bench.hill import Hill

from hpcjf.types import Config
from race.outcome import Interval, Outcome, Point, Recorder, interval, ranks, verdict
from race.pool import Pool, Site, Training

FULL = 20 + 90 * 4
BEST: Config = {"learning_rate": 1e-5, "clip_range": 0.2}
GOOD: Config = {"learning_rate": 2e-5, "clip_range": 0.2}


def outcome(*points: tuple[float, float, float], budget: float = 1000) -> Outcome:
    """Points as (cost, delivered, truth), after a recipe of worth 0.2 whose training costs 100; the span is 0 to 1."""
    known = tuple(Point(*each, {}) for each in [(0.0, 100.0, 0.2), *points])
    return Outcome("p", "m", 0, budget, False, 1.0, (0.0, 1.0), known, 1100, configurations=10, jobs=12, steps=90)


def test_a_recommendation_counts_once_its_training_is_paid_for() -> None:
    seen = outcome((150, 250, 0.5), (200, 400, 0.9))
    costs = (0, 99, 249, 250, 399, 400, 1e9)
    assert [seen.truth_at(cost) for cost in costs] == [0.2, 0.2, 0.2, 0.5, 0.5, 0.9, 0.9]
    assert seen.regret == pytest.approx(0.1)


def test_the_newest_of_the_paid_ones_is_the_one_that_is_returned() -> None:
    """The second one was trained before, the first one would still have had to be."""
    seen = outcome((150, 400, 0.9), (200, 200, 0.5))
    assert [seen.truth_at(cost) for cost in (300, 500)] == [0.5, 0.5]
    assert seen.cost_to_reach(0.5) == 200
    assert math.isinf(seen.cost_to_reach(0.9))


def test_cost_to_reach() -> None:
    seen = outcome((150, 250, 0.5), (200, 400, 0.4), (500, 1200, 1.0))
    assert [seen.cost_to_reach(truth) for truth in (0.1, 0.2, 0.45)] == [100, 100, 250]
    assert math.isinf(seen.cost_to_reach(0.6))  # only after the budget


def test_regret_is_averaged_over_the_logarithm_of_cost() -> None:
    seen = outcome((10, 10**2.5, 0.7))
    assert seen.regret_area == pytest.approx(0.5 * 0.8 + 0.5 * 0.3)
    assert outcome().regret_area == pytest.approx(0.8)


def test_time_per_trial_is_all_cost_over_distinct_configurations() -> None:
    assert outcome().time_per_trial == 110


def test_an_outcome_survives_its_line_of_json() -> None:
    seen = outcome((150, 250, 0.5))
    assert Outcome.from_json(json.loads(json.dumps(seen.to_json()))) == seen


def test_the_recorder_adds_the_training_that_is_still_to_be_done() -> None:
    pool = Pool(Hill(), 0, Site(latency=0))
    recorder = Recorder(pool)
    recorder.recommend([BEST])
    pool.submit(Training("x", "target"), BEST, 90)
    while pool.active:
        pool.jump()
    recorder.recommend([BEST])  # no news
    recorder.recommend([GOOD])
    assert [(p.cost, p.delivered) for p in recorder.points] == [(0, FULL), (0, FULL), (FULL, 2 * FULL)]
    assert [p.truth for p in recorder.points] == pytest.approx([0.7, 1.0, 1.0 - 0.3 * math.log10(2)])
    assert recorder.outcome("m", 1000).cost == 2 * FULL


def test_of_several_the_best_on_the_target_is_returned_and_all_are_paid_for() -> None:
    recorder = Recorder(Pool(Hill(), 0, Site()))
    recorder.recommend([GOOD, BEST])
    assert recorder.points[-1].config == BEST
    assert recorder.points[-1].delivered == 2 * FULL


def test_a_bootstrap_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = [(i := interval(rng.normal(3, 1, 40))).low <= 3 <= i.high for _ in range(200)]
    assert 0.88 < np.mean(hits) < 0.99
    assert interval([2.0, 2.0]) == Interval(2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("advantage", "word"),
    [
        (Interval(0.0, 0.0, 0.0), "tie"),
        (Interval(0.009, -0.1, 0.1), "tie"),
        (Interval(0.009, 0.001, 0.02), "win"),
        (Interval(-0.009, -0.02, -0.001), "loss"),
        (Interval(0.011, -0.1, 0.1), "win"),
        (Interval(-0.011, -0.1, 0.1), "loss"),
    ],
)
def test_a_tie_needs_a_small_difference_and_an_interval_around_nothing(advantage: Interval, word: str) -> None:
    assert verdict(advantage) == word


def test_ranks_are_shared_by_equals() -> None:
    regrets = np.array([[0.1, 0.3, 0.2], [0.5, 0.5, 0.1], [0.2, 0.2, 0.2]])
    assert ranks(regrets).tolist() == [[1, 3, 2], [2.5, 2.5, 1], [2, 2, 2]]
