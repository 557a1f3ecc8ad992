from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcjf.core.beliefs import Beliefs
from hpcjf.core.surrogate import Inputs
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal

FULL = Fidelity("m", 90)


def configs(synthetic: Any, n: int) -> list[Config]:
    of = synthetic.problem()
    return [dict(config) for config in of.space.space_filling(n, 0)]


def beliefs(synthetic: Any, observations: list[Observation], broken: tuple[Observation, ...] = ()) -> Beliefs:
    of = synthetic.problem()
    inputs = Inputs(of.space, {m.name: m.parameters for m in of.models}, of.rungs[0], of.rungs[-1])
    return Beliefs(inputs, observations, [o.score for o in observations if o.score is not None], broken)


def seen(synthetic: Any, config: Config, fidelity: Fidelity, score: float | None = None) -> Observation:
    value = synthetic.true_score(config, fidelity) if score is None else score
    return synthetic.observe(0, Proposal(config, fidelity), value)  # type: ignore[no-any-return]


def test_a_score_at_the_target_is_believed_more_than_one_at_the_proxy(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known])
    at = [known[0]] * 3
    joint = fitted.joint(fitted.believing(at[:0], []), at, [FULL, Fidelity("m", 30), Fidelity("xs", 30)])
    sigma = np.abs(joint.covariance) / np.sqrt(joint.variance_there + joint.noise)
    assert sigma[0] > sigma[1] > 0
    assert sigma[0] > sigma[2] > 0
    assert sigma[0] <= joint.variance[0] ** 0.5 + 1e-9, "no observation moves the mean by more than the doubt"


def test_cost_follows_rollouts_and_model(synthetic: Any) -> None:
    known = configs(synthetic, 8)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity(m, 30)) for c in known for m in ("xs", "m")])
    at = [{**known[0], "rollouts": rollouts} for rollouts in (4, 12)]
    small, large = (fitted.seconds_per_step(at, [Fidelity(m, 90)] * 2) for m in ("xs", "m"))
    truth = [synthetic.seconds_per_step(config, "m") for config in at]
    assert large == pytest.approx(truth, rel=0.3)
    assert (small < large / 3).all()


def test_a_model_that_was_never_timed_costs_by_its_size(synthetic: Any) -> None:
    known = configs(synthetic, 4)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known])
    expected = synthetic.seconds_per_step(known[0], "m")
    assert fitted.seconds_per_step(known[:1], [FULL]) == pytest.approx([expected], rel=0.3)
    assert fitted.startup_seconds("m") == fitted.startup_seconds("xs") == 10.0


def test_a_resumed_trial_is_timed_over_its_own_steps(synthetic: Any) -> None:
    config = configs(synthetic, 1)[0]
    first = seen(synthetic, config, Fidelity("xs", 90))
    resumed = Observation(1, first.config_id, config, first.fidelity, 0.3, Cause.COMPLETED, 30, 120.0, 5.0)
    assert beliefs(synthetic, [resumed]).seconds_per_step([config], [first.fidelity]) == pytest.approx([2.0], rel=0.01)


def test_without_a_timed_trial_costs_are_relative_to_the_target(synthetic: Any) -> None:
    config = configs(synthetic, 1)[0]
    o = seen(synthetic, config, FULL)
    untimed = Observation(0, o.config_id, config, o.fidelity, 0.3, Cause.COMPLETED, 0, 0.0, 0.0)
    fitted = beliefs(synthetic, [untimed])
    assert fitted.seconds_per_step([config], [FULL]) == pytest.approx([1.0])
    assert fitted.startup_seconds("m") == 0.0


def test_the_trend_comes_from_promoted_configurations_not_from_their_selection(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    flat = [seen(synthetic, c, Fidelity("xs", 10), 0.2) for c in known[:5]]
    lucky = [seen(synthetic, known[5], Fidelity("xs", steps), 0.6) for steps in (10, 30, 90)]
    fitted = beliefs(synthetic, flat + lucky)
    row = fitted.target_mean(fitted.score, known)
    assert 0.4 < row[5] < 0.65, "its score never moved with the budget"
    assert (row[:5] < 0.35).all(), "only a better configuration was run longer: budget itself helped nothing"
    assert (row[:5] > 0.15).all()


def test_learning_curves_raise_the_expectation_at_full_budget(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    start = [seen(synthetic, c, Fidelity("m", 10), 0.2) for c in known]
    grown = [seen(synthetic, c, FULL, 0.5) for c in known[:2]]
    fitted = beliefs(synthetic, start + grown)
    assert (fitted.target_mean(fitted.score, known[2:]) > 0.35).all()


def test_failures_lower_the_chance_of_their_neighbours(synthetic: Any) -> None:
    known = configs(synthetic, 5)
    oom = synthetic.observe(9, Proposal(known[0], Fidelity("m", 10)), None, Cause.OUT_OF_MEMORY)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known[1:]], (oom,))
    near, elsewhere = fitted.feasible([known[0], known[2]], [Fidelity("m", 10), Fidelity("xs", 10)])
    assert near < 0.6
    assert elsewhere > 0.8


def test_growth_seen_on_the_proxy_is_carried_on_to_the_full_budget(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    curves = [
        seen(synthetic, c, Fidelity("xs", steps), score) for c in known for steps, score in ((10, 0.2), (30, 0.35))
    ]
    fitted = beliefs(synthetic, curves)
    assert (fitted.target_mean(fitted.score, known) > 0.4).all()
