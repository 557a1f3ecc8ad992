from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import ModelFidelity, make_searcher
from hpcjf.types import Cause, Fidelity, Observation, Proposal

FULL = Fidelity("m", 90)
PROXY = Fidelity("xs", 10)


def begin(synthetic: Any, of: Any) -> tuple[Any, list[Proposal]]:
    """A searcher that knows its whole initial design, and the design."""
    searcher, asked = make_searcher("jfhpo", of), []
    for number in range(1 + of.initial):
        asked.append(searcher.ask(number, []))
        searcher.tell(synthetic.observe(number, asked[-1], synthetic.true_score(asked[-1].config, PROXY)))
    return searcher, asked


def test_the_study_starts_with_the_recipe_and_a_design_on_the_cheapest_fidelity(synthetic: Any) -> None:
    _, asked = begin(synthetic, synthetic.problem())
    assert [p.why["reason"] for p in asked] == ["recipe", *["initial design"] * 4]
    assert {p.fidelity for p in asked} == {PROXY}
    rates = sorted(np.log10(p.config["learning_rate"]) for p in asked[1:])
    assert min(np.diff(rates)) > 0.2


def test_a_slot_is_filled_although_nothing_is_observed_yet(synthetic: Any) -> None:
    searcher, pending = make_searcher("jfhpo", synthetic.problem()), []
    for number in range(9):
        pending.append(synthetic.pend(searcher.ask(number, pending)))
    assert {p.fidelity for p in pending} == {PROXY}
    assert len({p.config_id for p in pending}) == 9


def test_a_proposal_says_what_led_to_it(synthetic: Any) -> None:
    searcher, _ = begin(synthetic, synthetic.problem())
    why = searcher.ask(5, []).why
    assert why["expected_improvement"] > 0
    assert why["marginal_cost_s"] > 10
    assert 0 < why["target_mean"] < 1
    assert why["target_std"] > 0
    assert all(type(value) in (float, int, str) for value in why.values())


def test_trials_in_flight_change_the_next_proposal(synthetic: Any) -> None:
    searcher, _ = begin(synthetic, synthetic.problem())
    first = searcher.ask(5, [])
    second = searcher.ask(5, [synthetic.pend(first)])
    assert (second.config, second.fidelity.model) != (first.config, first.fidelity.model)


def alone(synthetic: Any) -> Any:
    """A problem of one model, so that no target probe narrows the choice."""
    return synthetic.problem(models=synthetic.problem().models[:1], max_trials=None)


def near(of: Any, config: Any, n: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return of.space.neighbours(config, rng, [0.01] * n)


def test_a_neighbour_in_flight_is_a_reason_to_look_elsewhere(synthetic: Any) -> None:
    of = alone(synthetic)
    searcher, _ = begin(synthetic, of)
    first = searcher.ask(5, [])
    pending = [synthetic.pend(Proposal(config, first.fidelity)) for config in near(of, first.config, 3)]
    assert searcher.ask(5, pending).config != first.config


def test_neighbours_that_diverged_are_a_reason_to_look_elsewhere(synthetic: Any) -> None:
    of = alone(synthetic)
    searcher, _ = begin(synthetic, of)
    first = searcher.ask(5, [])
    for config in near(of, first.config, 8):
        diverged = synthetic.observe(4, Proposal(config, first.fidelity), None, Cause.DIVERGED)
        searcher.tell(replace(diverged, seconds=0.0))
    assert searcher.ask(5, []).config != first.config


@pytest.mark.parametrize("cause", [Cause.STOPPED_KL, Cause.STOPPED_REWARD])
def test_a_stopped_configuration_stays_off_its_model_and_counts_as_seen(cause: Cause, synthetic: Any) -> None:
    of = synthetic.problem(max_trials=None)
    searcher, asked = begin(synthetic, of)
    best = max(asked, key=lambda p: synthetic.true_score(p.config, PROXY))
    stopped = Proposal(best.config, Fidelity("xs", 27), {"resumed_from": 10})
    searcher.tell(synthetic.observe(5, stopped, 0.6, cause))
    assert searcher.describe()["observations"] == 6
    assert not searcher.history.open(config_id(best.config), Fidelity("xs", 90))
    assert searcher.history.open(config_id(best.config), FULL)
    for number in range(6, 14):
        proposal = searcher.ask(number, [])
        assert (proposal.config, proposal.fidelity.model) != (best.config, "xs")
        searcher.tell(synthetic.observe(number, proposal, 0.3))


def test_a_configuration_that_failed_on_the_target_is_not_recommended(synthetic: Any) -> None:
    searcher, asked = begin(synthetic, synthetic.problem())
    favourite = searcher.best()
    searcher.tell(synthetic.observe(5, Proposal(favourite, FULL), None, Cause.OUT_OF_MEMORY))
    assert searcher.best() != favourite
    assert searcher.best() in [p.config for p in asked]


def test_a_study_whose_every_trial_failed_goes_on_with_new_points(synthetic: Any) -> None:
    of = synthetic.problem()
    searcher, seen = make_searcher("jfhpo", of), set()
    for number in range(10):
        proposal = searcher.ask(number, [])
        seen.add(config_id(proposal.config))
        searcher.tell(synthetic.observe(number, proposal, None, Cause.DIVERGED))
    assert len(seen) == 10
    assert searcher.best() == of.recipe


def test_an_interrupted_trial_resumes_from_its_checkpoint_not_from_its_last_step(synthetic: Any) -> None:
    searcher, asked = begin(synthetic, synthetic.problem(max_trials=None))
    for p in asked:
        half = Proposal(p.config, Fidelity("xs", 37), {"resumed_from": 10})
        searcher.tell(synthetic.observe(5 + asked.index(p), half, 0.5, Cause.CANCELLED_BY_OTHER))
    history = searcher.history
    assert history.steps(config_id(asked[0].config), "xs") == 30
    assert not history.open(config_id(asked[0].config), Fidelity("xs", 30))
    assert history.open(config_id(asked[0].config), Fidelity("xs", 90))


def test_a_full_target_score_outweighs_what_the_proxy_promised(synthetic: Any) -> None:
    searcher, asked = begin(synthetic, synthetic.problem())
    scores = dict(zip((config_id(p.config) for p in asked), (0.5, 0.3, 0.3, 0.3, 0.3), strict=True))
    liar, honest = asked[0], asked[1]
    for number, p in enumerate((liar, honest), 5):
        searcher.tell(synthetic.observe(number, Proposal(p.config, FULL), 0.05 if p is liar else 0.6))
    assert scores[config_id(liar.config)] > scores[config_id(honest.config)]
    assert searcher.best() == honest.config


@pytest.fixture(scope="module")
def seeds() -> range:
    return range(3)


@pytest.fixture(scope="module")
def studies(seeds: range) -> dict[int, Any]:
    return {}


@pytest.mark.parametrize("seed", range(3))
class TestSimulatedStudy:
    @pytest.fixture
    def study(self, seed: int, studies: dict[int, Any], synthetic: Any) -> Any:
        if seed not in studies:
            studies[seed] = synthetic.simulate(synthetic.problem(seed=seed))
        return studies[seed]

    def test_it_spends_its_trials_and_no_more(self, study: Any) -> None:
        assert len(study.proposals) == len(study.observations) == 16

    def test_it_promotes_and_pays_for_the_missing_steps_only(self, study: Any, studies: dict[int, Any]) -> None:
        promoted = [p for p in study.proposals if p.why.get("resumed_from", 0)]
        assert promoted or study is not studies[0]
        for p in promoted:
            done = max(
                o.fidelity.steps
                for o in study.observations
                if (o.config_id, o.fidelity.model) == (config_id(p.config), p.fidelity.model)
                and o.fidelity.steps < p.fidelity.steps
            )
            assert p.why["resumed_from"] == done

    def test_it_never_repeats_itself(self, study: Any) -> None:
        reached: dict[tuple[str, str], int] = {}
        for p in study.proposals:
            key = (config_id(p.config), p.fidelity.model)
            assert p.fidelity.steps > reached.get(key, 0)
            reached[key] = p.fidelity.steps

    def test_it_tries_known_configurations_on_the_target_before_the_end(self, study: Any) -> None:
        models = [p.fidelity.model for p in study.proposals]
        assert "m" in models[:11]
        assert models[-5:].count("m") >= 3
        assert any(p.fidelity == FULL for p in study.proposals)
        on = {model: {o.config_id for o in study.observations if o.fidelity.model == model} for model in ("xs", "m")}
        assert on["xs"] & on["m"], "the transfer check needs configurations seen on both"

    def test_its_recommendation_was_observed_and_beats_the_recipe(self, study: Any, synthetic: Any) -> None:
        assert study.searcher.best() in [o.config for o in study.observations]
        assert study.recommended > synthetic.true_score(synthetic.problem().recipe, FULL) + 0.05

    def test_the_same_seed_gives_the_same_study(self, study: Any, seed: int, synthetic: Any) -> None:
        if seed == 0:
            assert synthetic.simulate(synthetic.problem(seed=0)).proposals == study.proposals


def test_minimising_the_negated_score_is_the_same_study(synthetic: Any) -> None:
    up = synthetic.simulate(synthetic.problem(max_trials=9))
    down = synthetic.simulate(synthetic.problem(max_trials=9, direction="minimize"))
    assert [(p.config, p.fidelity) for p in up.proposals] == [(p.config, p.fidelity) for p in down.proposals]
    assert up.proposals[-1].why["target_mean"] == pytest.approx(-down.proposals[-1].why["target_mean"])
    assert up.searcher.best() == down.searcher.best()


def test_it_costs_far_less_than_random_search_of_as_many_trials(synthetic: Any) -> None:
    def seconds(observations: list[Observation]) -> float:
        return sum(
            (o.fidelity.steps - o.start_step) * synthetic.seconds_per_step(o.config, o.fidelity.model)
            for o in observations
        )

    joint = synthetic.simulate(synthetic.problem(seed=5))
    plain = synthetic.simulate(synthetic.problem(seed=5), "random")
    assert seconds(joint.observations) < 0.5 * seconds(plain.observations)


def test_one_model_and_one_budget_make_an_ordinary_search(synthetic: Any) -> None:
    of = synthetic.problem()
    study = synthetic.simulate(synthetic.problem(models=of.models[1:], rungs=(90,), max_trials=10))
    assert {p.fidelity for p in study.proposals} == {FULL}
    assert len({config_id(p.config) for p in study.proposals}) == 10


def test_a_study_bounded_by_hours_keeps_probing_the_target(synthetic: Any) -> None:
    searcher, _ = begin(synthetic, synthetic.problem(max_trials=None))
    models = []
    for number in range(5, 17):
        proposal = searcher.ask(number, [])
        models.append(proposal.fidelity.model)
        searcher.tell(synthetic.observe(number, proposal, synthetic.true_score(proposal.config, proposal.fidelity)))
    assert models.count("m") >= 3


def test_the_global_random_state_is_neither_read_nor_moved(synthetic: Any) -> None:
    np.random.seed(3)
    before = np.random.get_state()[1].tolist(), random.getstate()
    searcher, _ = begin(synthetic, synthetic.problem())
    searcher.ask(5, [])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


def test_configurations_of_the_user_come_right_after_the_recipe(synthetic: Any) -> None:
    given = ({"learning_rate": 5e-5}, {"learning_rate": 7e-6, "rollouts": 12})
    _, asked = begin(synthetic, synthetic.problem(given=given))
    assert [p.why["reason"] for p in asked] == ["recipe", "given", "given", "initial design", "initial design"]
    assert asked[1].config == {**synthetic.RECIPE, "learning_rate": 5e-5}
    assert asked[2].config["rollouts"] == 12


def earlier(synthetic: Any, model: str, n: int = 25) -> tuple[Observation, ...]:
    of = synthetic.problem()
    trials = [Proposal(of.complete(config), FULL) for config in of.space.space_filling(n, 5)]
    told = [synthetic.observe(k, p, synthetic.true_score(p.config, FULL)) for k, p in enumerate(trials)]
    return tuple(replace(o, fidelity=Fidelity(model, 90)) for o in told)


@pytest.mark.parametrize("model", ["m", "other"])
def test_an_earlier_study_takes_the_place_of_the_initial_design(model: str, synthetic: Any) -> None:
    of = synthetic.problem(
        earlier=earlier(synthetic, model), earlier_models=(ModelFidelity("other", 500_000),), max_trials=None
    )
    searcher = make_searcher("jfhpo", of)
    recipe = searcher.ask(0, [])
    assert recipe.why["reason"] == "recipe"
    second = searcher.ask(1, [synthetic.pend(recipe)])
    assert second.why["reason"] not in ("recipe", "initial design")
    assert synthetic.true_score(second.config, FULL) > 0.4, "the earlier study knows where to look"
    assert searcher.history.trials == 0, "its trials are none of this study's"
    assert searcher.best() == of.recipe, "nothing has been observed here"


def test_the_papers_acquisition_stays_on_the_proxy_and_weighs_its_score_by_cost(synthetic: Any) -> None:
    study = synthetic.simulate(synthetic.problem(acquisition="paper", max_trials=14))
    assert {p.fidelity.model for p in study.proposals} == {"xs"}
    assert min(p.why["marginal_cost_s"] for p in study.proposals[5:]) > 10
    assert study.searcher.best() in [o.config for o in study.observations]


def test_full_runs_of_the_target_get_their_share_of_the_cost(synthetic: Any) -> None:
    study = synthetic.simulate(synthetic.problem(max_trials=60))
    cost = {True: 0.0, False: 0.0}
    for o in study.observations:
        cost[o.fidelity == FULL] += o.seconds + o.startup_seconds
    assert 0.25 < cost[True] / sum(cost.values()) < 0.75
    reasons = [p.why["reason"] for p in study.proposals if p.fidelity == FULL]
    assert reasons[0] != "exploration", "first what the surrogate holds for best"
    assert reasons.count("exploration") >= 2


def test_a_proxy_that_ranks_unlike_the_target_loses_its_share_and_the_figure_is_told(synthetic: Any) -> None:
    of = synthetic.problem(max_trials=None)
    searcher, _ = begin(synthetic, of)
    asked = []
    for number in range(5, 45):
        proposal = searcher.ask(number, [])
        asked.append(proposal)
        height = synthetic.true_score(proposal.config, FULL)
        score = 0.6 - height if proposal.fidelity.model == "xs" else height
        searcher.tell(synthetic.observe(number, proposal, score))
    figures = [p.why["transfer_spearman"] for p in asked if "transfer_spearman" in p.why]
    assert min(figures) < 0.5
    assert "larger model" in [p.why["reason"] for p in asked]
    cost = {model: 0.0 for model in ("xs", "m")}
    for o, _ in searcher.history.scored:
        cost[o.fidelity.model] += o.seconds + o.startup_seconds
    assert cost["xs"] < 0.35 * sum(cost.values())


def test_a_winner_stays_below_the_ceiling_of_the_kl(synthetic: Any) -> None:
    def told(ceiling: float | None) -> Any:
        searcher, asked = begin(synthetic, synthetic.problem(kl_ceiling=ceiling))
        for number, p in enumerate(asked, 5):
            rate = float(p.config["learning_rate"])
            seen = synthetic.observe(number, Proposal(p.config, FULL), 0.3 + rate * 100)
            searcher.tell(replace(seen, kl=1e4 * rate))
        return searcher, asked

    free, asked = told(None)
    bound, _ = told(0.2)
    rates = sorted(float(p.config["learning_rate"]) for p in asked)
    assert free.best()["learning_rate"] == rates[-1]
    assert bound.best()["learning_rate"] <= 2e-5 < rates[-1]


def test_the_mean_of_late_scores_counts_where_it_is_known(synthetic: Any) -> None:
    searcher, asked = begin(synthetic, synthetic.problem())
    for number, p in enumerate(asked[:2], 5):
        seen = synthetic.observe(number, Proposal(p.config, FULL), 0.3)
        searcher.tell(replace(seen, late_score=0.6 if number == 5 else 0.2, score=0.1 if number == 5 else 0.5))
    assert searcher.best() == asked[0].config
