from __future__ import annotations

import math

import numpy as np
import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import load_run
from hpcjf.analysis.transfer import Transfer, kendall, spearman, transfer
from hpcjf.types import Fidelity


def checked(run: RunBuilder) -> tuple[Transfer, ...]:
    return transfer(load_run(run.layout.root))


def scored(run: RunBuilder, rollouts: int, model: str, steps: int, score: float) -> None:
    trial = run.trial(RECIPE | {"rollouts": rollouts}, model, steps)
    run.submit(trial)
    run.end(trial, 1, steps, score=score)


def test_hand_computed_rank_correlations() -> None:
    left, right = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(left, right) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert kendall(left, right) == pytest.approx((5 - 1) / 6)


def test_ties_as_tau_b_and_mean_ranks() -> None:
    left, right = np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall(left, right) == pytest.approx(5 / math.sqrt(5 * 6))
    ranks = np.array([1.5, 1.5, 3, 4])
    assert spearman(left, right) == pytest.approx(np.corrcoef(ranks, [1, 2, 3, 4])[0, 1])


def test_opposite_orders_and_constants() -> None:
    rising = np.arange(5.0)
    assert spearman(rising, -rising) == pytest.approx(-1)
    assert kendall(rising, -rising) == pytest.approx(-1)
    assert spearman(rising, np.ones(5)) is None
    assert kendall(rising, np.ones(5)) is None


def test_configurations_seen_on_both_models_are_ranked(run: RunBuilder) -> None:
    for place, (small, large) in enumerate([(0.1, 0.2), (0.2, 0.1), (0.3, 0.4), (0.4, 0.5)]):
        scored(run, 2 + place, "small", 10, small)
        scored(run, 2 + place, "large", 10, large)
    scored(run, 9, "small", 10, 0.9)
    [check] = checked(run)
    assert (check.proxy, check.target, check.count) == (Fidelity("small", 10), Fidelity("large", 10), 4)
    assert check.spearman == pytest.approx(0.8)
    assert check.kendall == pytest.approx(4 / 6)


def test_budgets_are_not_mixed(run: RunBuilder) -> None:
    for place in range(4):
        scored(run, 2 + place, "small", 10, 0.1 * place)
        scored(run, 2 + place, "large", 10, 0.1 * place)
    scored(run, 2, "small", 90, 0.95)
    [check] = checked(run)
    assert check.proxy.steps == 10
    assert check.spearman == pytest.approx(1)


def test_three_are_too_few_to_say(run: RunBuilder) -> None:
    for place in range(3):
        scored(run, 2 + place, "small", 10, 0.1 * place)
        scored(run, 2 + place, "large", 10, 0.1 * place)
    [check] = checked(run)
    assert (check.count, check.spearman, check.kendall) == (3, None, None)


def test_without_a_target_score_there_is_nothing_to_check(run: RunBuilder) -> None:
    scored(run, 2, "small", 10, 0.1)
    assert checked(run) == ()
