import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from hpcjf.core.stopping import decide
from hpcjf.study import StoppingSection
from hpcjf.types import Cause

PAPER = StoppingSection(rule="paper")
ROBUST = StoppingSection(rule="robust")
STEADY = 0.02


def trace(kl: ArrayLike, reward: ArrayLike, **columns: ArrayLike) -> dict[str, NDArray[np.generic]]:
    """Columns from global step 1 on; a scalar KL or reward is a constant series."""
    length = max(np.size(kl), np.size(reward))
    series = {name: np.broadcast_to(np.asarray(x, float), length) for name, x in (("kl", kl), ("reward_mean", reward))}
    return {"step": np.arange(1, length + 1), **series, **{name: np.asarray(x) for name, x in columns.items()}}


def noise(seed: int, length: int, scale: float) -> NDArray[np.float64]:
    return scale * np.random.default_rng(seed).standard_normal(length)


class TestPaper:
    def test_kl_growth_fires_on_the_fifth_step_in_a_row(self) -> None:
        decision = decide(trace([0.1 * 1.16**t for t in range(6)], 0.3), PAPER)
        assert decision is not None
        assert (decision.cause, decision.step) == (Cause.STOPPED_KL, 6)
        assert "15%" in decision.why

    def test_four_steps_in_a_row_are_not_enough(self) -> None:
        growth = [1.2, 1.2, 1.2, 1.2, 1.0, 1.2, 1.2, 1.2, 1.2]
        assert decide(trace(0.1 * np.cumprod([1.0, *growth]), 0.3), PAPER) is None

    def test_growth_of_exactly_the_threshold_does_not_exceed_it(self) -> None:
        half = PAPER.model_copy(update={"kl_growth": 0.5})
        assert decide(trace([1.5**t for t in range(12)], 0.3), half) is None
        assert decide(trace([1.51**t for t in range(12)], 0.3), half) is not None

    def test_reward_drop_fires(self) -> None:
        decision = decide(trace(STEADY, [0.5 * 0.85**t for t in range(6)]), PAPER)
        assert decision is not None
        assert (decision.cause, decision.step) == (Cause.STOPPED_REWARD, 6)

    def test_all_zero_rewards_fire_at_the_fifth_step(self) -> None:
        decision = decide(trace(STEADY, [0.0] * 5), PAPER)
        assert decision is not None
        assert (decision.cause, decision.step) == (Cause.STOPPED_REWARD, 5)
        assert decide(trace(STEADY, [0.0] * 4), PAPER) is None

    def test_a_kl_of_zero_fires_nothing(self) -> None:
        assert decide(trace([0.0] * 20, 0.3), PAPER) is None

    def test_a_zero_denominator_breaks_the_row(self) -> None:
        assert decide(trace([0.1, 0.0, 0.1, 0.2, 0.4, 0.8, 1.6], 0.3), PAPER) is None
        assert decide(trace([0.1, 0.01, 0.1, 0.2, 0.4, 0.8, 1.6], 0.3), PAPER) is not None

    def test_its_known_weakness_a_healthy_run_with_a_tiny_kl_is_stopped(self) -> None:
        assert decide(trace(np.geomspace(0.005, 0.02, 9), 0.3), PAPER) is not None

    def test_warm_up_is_no_part_of_the_paper(self) -> None:
        late = PAPER.model_copy(update={"warmup_steps": 1000})
        assert decide(trace(STEADY, [0.0] * 5), late) is not None

    def test_thresholds_and_patience_are_the_users(self) -> None:
        quick = PAPER.model_copy(update={"patience": 2, "kl_growth": 0.01})
        decision = decide(trace([0.1, 0.102, 0.105], 0.3), quick)
        assert decision is not None
        assert decision.step == 3


def collapse(seed: int) -> NDArray[np.float64]:
    return 0.25 * np.exp(-np.arange(60) / 1.5) + np.abs(noise(seed, 60, 0.003))


class TestRobustStops:
    @pytest.mark.parametrize("seed", range(5))
    def test_a_reward_that_collapses_at_once_with_a_kl_above_three(self, seed: int) -> None:
        decision = decide(trace(3.2 * (1 - np.exp(-np.arange(60) / 4)), collapse(seed)), ROBUST)
        assert decision is not None
        assert decision.cause.stopped
        assert decision.step <= 12

    @pytest.mark.parametrize("seed", range(5))
    def test_a_reward_that_collapses_while_the_kl_is_calm(self, seed: int) -> None:
        decision = decide(trace(STEADY, collapse(seed)), ROBUST)
        assert decision is not None
        assert decision.cause is Cause.STOPPED_REWARD

    @pytest.mark.parametrize("shift", [0.0, -1.0, 5.0])
    def test_a_late_collapse_on_any_scale(self, shift: float) -> None:
        shape = np.r_[np.linspace(0.2, 0.5, 30), np.linspace(0.5, -0.1, 8), np.full(22, -0.1)]
        decision = decide(trace(STEADY, 10 * (shape + shift * 0.1 + noise(0, 60, 0.02))), ROBUST)
        assert decision is not None
        assert decision.cause is Cause.STOPPED_REWARD
        assert 30 < decision.step < 50

    def test_gains_given_back_after_a_start_at_zero(self) -> None:
        shape = np.r_[np.zeros(10), np.linspace(0, 0.5, 20), np.linspace(0.5, 0, 8), np.zeros(22)]
        decision = decide(trace(STEADY, shape + noise(1, 60, 0.01)), ROBUST)
        assert decision is not None
        assert decision.step > 35

    def test_a_collapse_to_zero_although_its_steps_are_skipped_for_want_of_signal(self) -> None:
        reward = np.r_[0.25, 0.2, np.zeros(58)]
        decision = decide(trace(STEADY, reward, skipped=(reward == 0).astype(int)), ROBUST)
        assert decision is not None
        assert decision.cause is Cause.STOPPED_REWARD

    def test_a_kl_that_jumps_and_then_stays_flat(self) -> None:
        decision = decide(trace([0.0, *[4.4] * 30], 0.3 + noise(0, 31, 0.05)), ROBUST)
        assert decision is not None
        assert (decision.cause, decision.step) == (Cause.STOPPED_KL, ROBUST.warmup_steps)

    def test_a_kl_that_grows_exponentially_after_the_warm_up(self) -> None:
        decision = decide(trace(0.005 * 1.25 ** np.arange(40), 0.3 + noise(0, 40, 0.02)), ROBUST)
        assert decision is not None
        assert decision.cause is Cause.STOPPED_KL
        assert decision.step < 28, "well before the ceiling of 2.0"

    def test_entropy_below_a_floor_that_is_set(self) -> None:
        entropy = np.r_[np.full(20, 1.0), np.full(20, 0.01)]
        collapsing = trace(STEADY, 0.3 + noise(0, 40, 0.02), entropy=entropy)
        assert decide(collapsing, ROBUST) is None
        decision = decide(collapsing, ROBUST.model_copy(update={"entropy_floor": 0.05}))
        assert decision is not None
        assert decision.cause is Cause.STOPPED_KL
        assert "entropy was below 0.05" in decision.why
        assert 25 <= decision.step <= 40


def healthy_kl(seed: int, length: int) -> NDArray[np.float64]:
    level = 0.3 * (1 - np.exp(-np.arange(length) / 20)) ** 2
    return np.asarray(level * np.exp(noise(seed, length, 0.1)))


class TestRobustSpares:
    def test_a_tiny_kl_that_grows_fourfold(self) -> None:
        kl = np.r_[np.full(12, 0.005), np.geomspace(0.005, 0.02, 9), np.full(10, 0.02)]
        assert decide(trace(kl, 0.3 + noise(0, 31, 0.02)), ROBUST) is None

    @pytest.mark.parametrize("seed", range(20))
    def test_a_noisy_rising_reward(self, seed: int) -> None:
        reward = 0.25 + 0.25 * (1 - np.exp(-np.arange(90) / 20)) + noise(seed, 90, 0.06)
        assert decide(trace(healthy_kl(seed, 90), reward), ROBUST) is None

    @pytest.mark.parametrize("seed", range(10))
    def test_a_flat_reward_of_pure_noise_around_zero(self, seed: int) -> None:
        assert decide(trace(healthy_kl(seed, 100), noise(seed, 100, 1.0)), ROBUST) is None

    def test_all_zero_rewards_at_the_start_which_the_paper_kills(self) -> None:
        reward = np.r_[np.zeros(40), np.linspace(0, 0.3, 40)]
        assert decide(trace(healthy_kl(0, 80), reward), ROBUST) is None
        assert decide(trace(healthy_kl(0, 80), reward), PAPER) is not None

    def test_rare_successes_judged_by_the_spread_within_a_step(self) -> None:
        reward = np.zeros(60)
        reward[[3, 4, 5, 17]] = 1 / 128
        assert decide(trace(STEADY, reward, reward_std=np.sqrt(reward * (1 - reward))), ROBUST) is None

    def test_a_steady_negative_reward(self) -> None:
        assert decide(trace(healthy_kl(0, 60), -1.0 + noise(3, 60, 0.1)), ROBUST) is None

    def test_a_kl_estimate_that_crosses_zero(self) -> None:
        assert decide(trace(noise(0, 60, 0.01), 0.3), ROBUST) is None

    def test_one_spike_of_the_kl(self) -> None:
        kl = np.full(40, 0.1)
        kl[20] = 8.0
        assert decide(trace(kl, 0.3), ROBUST) is None

    def test_everything_before_the_warm_up_ends(self) -> None:
        patient = ROBUST.model_copy(update={"warmup_steps": 100})
        assert decide(trace([0.0, *[4.4] * 59], collapse(0)), patient) is None

    def test_a_kl_that_leaves_zero_fast_while_training_warms_up(self) -> None:
        kl = 0.002 * np.minimum(np.arange(40), 12) ** 2
        assert decide(trace(kl, 0.3), ROBUST) is None
        assert decide(trace(kl, 0.3), ROBUST.model_copy(update={"warmup_steps": 0})) is not None

    def test_a_setback_that_keeps_most_of_the_gains(self) -> None:
        reward = np.r_[np.linspace(0.2, 0.6, 30), np.linspace(0.6, 0.45, 5), np.full(20, 0.45)]
        assert decide(trace(STEADY, reward), ROBUST) is None

    def test_constant_series(self) -> None:
        assert decide(trace(np.zeros(50), np.full(50, 0.5)), ROBUST) is None


class TestBothRules:
    @pytest.mark.parametrize("settings", [PAPER, ROBUST], ids=["paper", "robust"])
    @pytest.mark.parametrize("column", ["kl", "reward_mean"])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_value_that_is_not_finite_stops_at_once(
        self, settings: StoppingSection, column: str, value: float
    ) -> None:
        rows = trace(np.full(4, 0.01), np.full(4, 0.3))
        rows[column] = np.array([0.1, 0.1, value, 0.1])
        decision = decide(rows, settings)
        assert decision is not None
        assert (decision.cause, decision.step) == (Cause.DIVERGED, 3)

    def test_an_earlier_rule_wins_over_a_later_nan(self) -> None:
        decision = decide(trace(STEADY, [0.0] * 8 + [math.nan]), PAPER)
        assert decision is not None
        assert decision.cause is Cause.STOPPED_REWARD

    def test_undefined_metrics_of_a_skipped_step_are_no_divergence(self) -> None:
        kl, skipped = np.full(30, 0.1), np.zeros(30)
        kl[7], skipped[7] = math.nan, 1
        assert decide(trace(kl, 0.3, skipped=skipped), ROBUST) is None
        assert decide(trace(kl, 0.3, skipped=np.zeros(30)), ROBUST) is not None

    def test_the_rule_none_never_stops(self) -> None:
        assert decide(trace([math.nan] * 9, [0.0] * 9), StoppingSection(rule="none")) is None

    @pytest.mark.parametrize("settings", [PAPER, ROBUST], ids=["paper", "robust"])
    @pytest.mark.parametrize("length", [0, 1])
    def test_a_trace_that_has_hardly_begun(self, settings: StoppingSection, length: int) -> None:
        assert decide(trace(np.zeros(length), np.zeros(length)), settings) is None

    def test_rows_as_the_trace_file_gives_them(self) -> None:
        columns = trace(STEADY, [0.0] * 6)
        rows = np.zeros(6, dtype=[("step", "<u4"), ("kl", "<f8"), ("reward_mean", "<f8"), ("skipped", "<u1")])
        for name in columns:
            rows[name] = columns[name]
        assert decide(rows, PAPER) == decide(columns, PAPER)

    @given(st.lists(st.floats(0, 5) | st.just(math.nan), min_size=1, max_size=40), st.sampled_from([PAPER, ROBUST]))
    def test_a_longer_trace_never_changes_a_decision(self, kl: list[float], settings: StoppingSection) -> None:
        rows = trace(kl, np.abs(np.sin(np.arange(len(kl)))))
        final = decide(rows, settings)
        for length in range(1, len(kl)):
            early = decide({name: column[:length] for name, column in rows.items()}, settings)
            assert early in (None, final)
            assert early is None or early.step <= length
