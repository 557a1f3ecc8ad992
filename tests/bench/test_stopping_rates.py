"""Stopping rules on curves that nobody had stopped."""

from __future__ import annotations

import numpy as np
import pytest

from hpcjf.study import StoppingSection
from race.problem import Curve
from race.stopping import Measured, Rates, Recorded, choose, figures, measure, rates

STEPS = 60


def curve(final: float, collapse: int | None = None, broken: int | None = None) -> Curve:
    """A rise to ``final``; with ``collapse`` the reward is 0 from there on."""
    step = np.arange(1, STEPS + 1)
    reward = final * (1 - 0.5 ** (step / 5))
    if collapse:
        reward = np.where(step > collapse, 0.0, reward)
    score = np.where(step % 10 == 0, final, np.nan)
    return Curve(1.0 * step, score, np.full(STEPS, 0.01), reward, np.full(STEPS, 0.1), broken)


def recorded(*curves: Curve, task: str = "t", model: str = "s") -> list[Recorded]:
    return [Recorded(task, model, each) for each in curves]


def test_a_false_stop_is_one_of_the_best_quarter() -> None:
    found = rates(recorded(curve(0.9, 30), curve(0.8), curve(0.5), *[curve(0.1)] * 5), StoppingSection(rule="paper"))
    assert (found.good, found.stopped) == (2, 1)
    assert found.false_stop_rate == 0.5


def test_steps_are_saved_on_the_others_only_and_up_to_where_they_would_have_ended() -> None:
    paper = StoppingSection(rule="paper")  # five zeros after step 30
    found = rates(recorded(curve(0.9, 30), curve(0.5, 30), curve(0.3), curve(0.2, broken=50)), paper)
    assert (found.steps, found.saved) == (60 + 60 + 50, 60 - 35)
    assert rates(recorded(curve(0.9), curve(0.1)), StoppingSection(rule="none")).saved == 0


def test_quarters_are_those_of_a_task_and_model() -> None:
    small = recorded(*(curve(0.1 * k) for k in range(1, 5)))
    large = recorded(*(curve(0.2 * k) for k in range(1, 5)), model="m")
    assert rates([*small, *large], StoppingSection()).good == 2


@pytest.mark.parametrize(
    ("stopped", "good", "bounds"), [(0, 30, (0.0, 0.1157)), (1, 50, (0.0005, 0.1065)), (5, 5, (0.4782, 1.0))]
)
def test_the_interval_is_the_exact_binomial_one(stopped: int, good: int, bounds: tuple[float, float]) -> None:
    assert Rates(good, stopped, 1, 0).bounds == pytest.approx(bounds, abs=1e-4)


def test_thresholds_save_what_they_can_without_false_stops() -> None:
    dipping = curve(0.9)
    dipping.reward[14:20] = 0.0  # recovers
    known = recorded(dipping, curve(0.5, 30), curve(0.4, 30), curve(0.3, 30))
    hasty = StoppingSection(patience=3, warmup_steps=5)
    assert rates(known, hasty).stopped == 1
    chosen = choose(known)
    assert rates(known, chosen).stopped == 0
    assert rates(known, chosen).saved > 0


def test_figures_are_those_of_the_tasks_on_which_nothing_was_set() -> None:
    known = [
        Measured("robust", "arithmetic", "", Rates(10, 5, 100, 0)),
        Measured("robust", "subtraction", "", Rates(10, 1, 100, 40)),
        Measured("robust", "subtraction", "from arithmetic", Rates(10, 9, 100, 90)),
        Measured("paper", "subtraction", "", Rates(10, 2, 100, 30)),
    ]
    assert figures(known) == {
        "false_stop_rate": 0.1, "steps_saved": 0.4, "false_stop_rate_paper": 0.2, "steps_saved_paper": 0.3,
    }  # fmt: skip


def test_every_rule_is_measured_on_every_task() -> None:
    known = [*recorded(curve(0.9), curve(0.5, 30)), *recorded(curve(0.8), curve(0.2, 30), task="u")]
    assert [each[:3] for each in measure(known, chosen=False)] == [
        (rule, task, "") for rule in ("paper", "robust") for task in "tu"
    ]


def test_a_step_without_an_update_is_no_divergence() -> None:
    skipping = curve(0.9)
    skipping.kl[20] = np.nan
    assert rates(recorded(skipping, curve(0.1)), StoppingSection()).stopped == 0
