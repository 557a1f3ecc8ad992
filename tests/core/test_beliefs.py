from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hpcjf.core.acquisition import lookahead_std
from hpcjf.core.beliefs import Beliefs, Kernels, active_set, refits, squashed
from hpcjf.core.surrogate import Inputs
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal

FULL = Fidelity("m", 90)


def configs(synthetic: Any, n: int) -> list[Config]:
    of = synthetic.problem()
    return [dict(config) for config in of.space.space_filling(n, 0)]


def beliefs(synthetic: Any, observations: list[Observation], broken: tuple[Observation, ...] = ()) -> Beliefs:
    inputs = inputs_of(synthetic)
    scored = [(o, o.score) for o in observations if o.score is not None]
    return Beliefs(inputs, Kernels.fit(inputs, scored, None, with_kl=True), scored, broken)


def inputs_of(synthetic: Any) -> Inputs:
    of = synthetic.problem()
    return Inputs(of.space, {m.name: m.parameters for m in of.models}, of.target, of.rungs[0], of.rungs[-1])


def target_mean(synthetic: Any, fitted: Beliefs, known: list[Config]) -> Any:
    return fitted.score.mean(inputs_of(synthetic).encode(known, [FULL] * len(known)))


def paces(synthetic: Any, fitted: Beliefs, known: list[Config], model: str, steps: int = 90) -> Any:
    fidelities = [Fidelity(model, steps)] * len(known)
    return fitted.seconds_per_step(inputs_of(synthetic).encode(known, fidelities), fidelities)


def seen(synthetic: Any, config: Config, fidelity: Fidelity, score: float | None = None) -> Observation:
    value = synthetic.true_score(config, fidelity) if score is None else score
    return synthetic.observe(0, Proposal(config, fidelity), value)  # type: ignore[no-any-return]


def test_a_score_at_the_target_is_believed_more_than_one_at_the_proxy(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known])
    there = inputs_of(synthetic).encode([known[0]] * 3, [FULL, Fidelity("m", 30), Fidelity("xs", 30)])
    target, observed = fitted.score.look(there[:1]), fitted.score.look(there)
    covariance = fitted.score.covariance(target, observed, np.zeros(3, dtype=int))
    sigma = lookahead_std(covariance, observed.variance, fitted.score.noise_variance(there))
    assert sigma[0] > sigma[1] > 0
    assert sigma[0] > sigma[2] > 0
    assert sigma[0] <= target.variance[0] ** 0.5 + 1e-9, "no observation moves the mean by more than the doubt"


def test_cost_follows_rollouts_and_model(synthetic: Any) -> None:
    known = configs(synthetic, 8)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity(m, 30)) for c in known for m in ("xs", "m")])
    at = [{**known[0], "rollouts": rollouts} for rollouts in (4, 12)]
    small, large = (paces(synthetic, fitted, at, m) for m in ("xs", "m"))
    truth = [synthetic.seconds_per_step(config, "m") for config in at]
    assert large == pytest.approx(truth, rel=0.3)
    assert (small < large / 3).all()


def test_a_model_that_was_never_timed_costs_by_its_size(synthetic: Any) -> None:
    known = configs(synthetic, 4)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known])
    expected = synthetic.seconds_per_step(known[0], "m")
    assert paces(synthetic, fitted, known[:1], "m") == pytest.approx([expected], rel=0.3)
    assert fitted.startup_seconds("m") == fitted.startup_seconds("xs") == 10.0


def test_a_resumed_trial_is_timed_over_its_own_steps(synthetic: Any) -> None:
    config = configs(synthetic, 1)[0]
    first = seen(synthetic, config, Fidelity("xs", 90))
    resumed = Observation(1, first.config_id, config, first.fidelity, 0.3, Cause.COMPLETED, 30, 120.0, 5.0)
    assert paces(synthetic, beliefs(synthetic, [resumed]), [config], "xs") == pytest.approx([2.0], rel=0.01)


def test_without_a_timed_trial_costs_are_relative_to_the_target(synthetic: Any) -> None:
    config = configs(synthetic, 1)[0]
    o = seen(synthetic, config, FULL)
    untimed = Observation(0, o.config_id, config, o.fidelity, 0.3, Cause.COMPLETED, 0, 0.0, 0.0)
    fitted = beliefs(synthetic, [untimed])
    assert paces(synthetic, fitted, [config], "m") == pytest.approx([1.0])
    assert fitted.startup_seconds("m") == 0.0


def test_the_trend_comes_from_promoted_configurations_not_from_their_selection(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    flat = [seen(synthetic, c, Fidelity("xs", 10), 0.2) for c in known[:5]]
    lucky = [seen(synthetic, known[5], Fidelity("xs", steps), 0.6) for steps in (10, 30, 90)]
    fitted = beliefs(synthetic, flat + lucky)
    row = target_mean(synthetic, fitted, known)
    assert 0.4 < row[5] < 0.65, "its score never moved with the budget"
    assert (row[:5] < 0.35).all(), "only a better configuration was run longer: budget itself helped nothing"
    assert (row[:5] > 0.15).all()


def test_learning_curves_raise_the_expectation_at_full_budget(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    start = [seen(synthetic, c, Fidelity("m", 10), 0.2) for c in known]
    grown = [seen(synthetic, c, FULL, 0.5) for c in known[:2]]
    fitted = beliefs(synthetic, start + grown)
    assert (target_mean(synthetic, fitted, known[2:]) > 0.35).all()


def test_failures_lower_the_chance_of_their_neighbours(synthetic: Any) -> None:
    known = configs(synthetic, 5)
    oom = synthetic.observe(9, Proposal(known[0], Fidelity("m", 10)), None, Cause.OUT_OF_MEMORY)
    fitted = beliefs(synthetic, [seen(synthetic, c, Fidelity("xs", 10)) for c in known[1:]], (oom,))
    near, elsewhere = fitted.feasible(
        inputs_of(synthetic).encode([known[0], known[2]], [Fidelity("m", 10), Fidelity("xs", 10)])
    )
    assert near < 0.6
    assert elsewhere > 0.8


def test_growth_seen_on_the_proxy_is_carried_on_to_the_full_budget(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    curves = [
        seen(synthetic, c, Fidelity("xs", steps), score) for c in known for steps, score in ((10, 0.2), (30, 0.35))
    ]
    fitted = beliefs(synthetic, curves)
    assert (target_mean(synthetic, fitted, known) > 0.4).all()


def test_a_stopped_trial_lowers_what_is_expected_of_it_at_its_full_budget(synthetic: Any) -> None:
    known = configs(synthetic, 6)
    curves = [seen(synthetic, c, Fidelity("m", steps), score) for c in known for steps, score in ((10, 0.2), (90, 0.5))]
    first = seen(synthetic, configs(synthetic, 7)[6], Fidelity("m", 30), 0.3)
    going, stopped = (
        target_mean(synthetic, beliefs(synthetic, [*curves, replace(first, cause=cause)]), [first.config])[0]
        for cause in (Cause.COMPLETED, Cause.STOPPED_REWARD)
    )
    assert stopped < going - 0.02
    assert stopped > 0.1, "a bound, not a score of 0"


def test_a_kl_that_was_seen_says_which_configurations_stay_below_a_ceiling(synthetic: Any) -> None:
    known = configs(synthetic, 8)
    rates = np.argsort([c["learning_rate"] for c in known])
    kls = dict(zip(rates, np.geomspace(1e-3, 3.0, 8), strict=True))
    fitted = beliefs(synthetic, [replace(seen(synthetic, c, FULL), kl=float(kls[i])) for i, c in enumerate(known)])
    rows = inputs_of(synthetic).encode([known[rates[0]], known[rates[-1]]], [FULL] * 2)
    below, above = fitted.within(rows, 0.05)
    assert below > 0.8 > 0.2 > above


def test_a_fall_off_a_cliff_keeps_its_order_and_little_of_its_height() -> None:
    values = np.array([0.0, 0.01, 0.30, 0.31, 0.32, 0.33, 0.34])
    drawn = squashed(values)
    assert (np.diff(drawn) > 0).all()
    assert drawn[2:].tolist() == values[2:].tolist()
    assert np.ptp(drawn) < np.ptp(values) / 2
    assert squashed(np.array([0.2, 0.2])).tolist() == [0.2, 0.2]


@pytest.mark.parametrize("count", [1, 5, 15, 16, 17, 40, 63, 64, 1000, 10_000])
def test_refits_come_with_every_15_percent_and_start_afresh_with_every_doubling(count: int) -> None:
    due = refits(count)
    assert due[-1] <= count < 1.16 * due[-1] + 3
    assert len(due) <= 5
    assert due == sorted(set(due))
    assert due[0] in (1, 2, 3, 4, 6, 8, 11) or np.log2(due[0] / 16) % 1 == 0
    if len(due) > 1:
        assert refits(due[-2]) == due[:-1], "the same chain, whenever one looks"


def test_an_active_set_keeps_the_best_and_an_even_sample_of_the_others(synthetic: Any) -> None:
    """P76: an ask stays bounded however long the study."""
    one = seen(synthetic, configs(synthetic, 1)[0], FULL)
    scored = [(one, float(value)) for value in range(100)]
    assert active_set(scored, 100) == scored
    kept = [value for _, value in active_set(scored, 20)]
    assert kept == sorted(kept)
    assert len(kept) == 20
    assert kept[-10:] == list(range(90, 100))
    assert kept[0] == 0.0
    assert np.ptp(np.diff(kept[:10])) <= 1.0
