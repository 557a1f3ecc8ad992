import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.core.acquisition import expected_improvement, feasibility, lookahead_std


def one(mean: float, std: float, incumbent: float) -> float:
    return float(expected_improvement(np.array([mean]), np.array([std]), incumbent)[0])


def test_expected_improvement_agrees_with_sampling() -> None:
    draws = np.random.default_rng(0).normal(0.3, 0.2, 400_000)
    assert one(0.3, 0.2, 0.5) == pytest.approx(np.mean(np.maximum(draws - 0.5, 0)), rel=0.02)


def test_at_the_incumbent_only_the_spread_counts() -> None:
    assert one(0.5, 0.1, 0.5) == pytest.approx(0.1 / np.sqrt(2 * np.pi))


def test_without_spread_it_is_the_plain_gain() -> None:
    assert one(0.7, 0.0, 0.5) == pytest.approx(0.2)
    assert one(0.3, 0.0, 0.5) == 0.0


@given(st.floats(-5, 5), st.floats(1e-6, 3), st.floats(-5, 5))
def test_it_is_never_negative_and_grows_with_mean_and_spread(mean: float, std: float, incumbent: float) -> None:
    value = one(mean, std, incumbent)
    assert value >= 0
    assert one(mean + 0.1, std, incumbent) >= value
    assert one(mean, std * 1.5, incumbent) >= value - 1e-12


def test_an_observation_moves_the_target_by_its_covariance() -> None:
    sigma = lookahead_std(np.array([0.0, 0.04, -0.04]), np.array([0.05, 0.04, 0.04]), 0.0)
    assert sigma == pytest.approx([0.0, 0.2, 0.2])
    noisy = lookahead_std(np.array([0.04]), np.array([0.04]), 0.12)
    assert noisy == pytest.approx([0.1])


def test_feasibility_falls_near_failures_only() -> None:
    seen, succeeded = np.array([[0.9, 0.5], [0.92, 0.5], [0.1, 0.5]]), np.array([0.0, 0.0, 1.0])
    near, far, none = feasibility(np.array([[0.9, 0.5], [0.1, 0.5], [0.5, 5.0]]), seen, succeeded)
    assert near < 0.4
    assert far > 0.95
    assert none == pytest.approx(1.0)


def test_feasibility_without_trials_is_certain() -> None:
    assert feasibility(np.zeros((3, 2)), np.zeros((0, 2)), np.zeros(0)).tolist() == [1.0, 1.0, 1.0]
