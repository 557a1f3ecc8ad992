"""What every method promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import make_searcher
from hpcjf.core.space import Space
from hpcjf.errors import StudyError
from hpcjf.study import Categorical
from hpcjf.types import Cause, Fidelity

METHODS = ["jfhpo", "random", "recipe"]
INFRASTRUCTURE = [cause for cause in Cause if cause.infrastructure]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_recipe_comes_first(method: str, synthetic: Any) -> None:
    of = synthetic.problem()
    proposal = make_searcher(method, of).ask(0, [])
    assert proposal is not None
    assert proposal.config == of.recipe
    assert proposal.why["reason"] == "recipe"


def test_nothing_observed_recommends_the_recipe(method: str, synthetic: Any) -> None:
    of = synthetic.problem()
    searcher = make_searcher(method, of)
    assert searcher.best() == of.recipe
    assert searcher.describe()["observations"] == 0


def test_asking_changes_nothing(method: str, synthetic: Any) -> None:
    searcher = make_searcher(method, synthetic.problem())
    first = searcher.ask(0, [])
    searcher.ask(5, [])
    assert searcher.ask(0, []) == first


def test_no_configuration_is_twice_in_flight_on_a_model(method: str, synthetic: Any) -> None:
    searcher, pending = make_searcher(method, synthetic.problem()), []
    for number in range(8):
        proposal = searcher.ask(number, pending)
        if proposal is not None:
            pending.append(synthetic.pend(proposal))
    keys = [(p.config_id, p.fidelity.model) for p in pending]
    assert len(set(keys)) == len(keys) == (1 if method == "recipe" else 8)


@pytest.mark.parametrize("cause", INFRASTRUCTURE)
def test_the_infrastructures_faults_leave_no_trace_in_the_search(method: str, cause: Cause, synthetic: Any) -> None:
    of = synthetic.problem(max_trials=None)
    clean, told = make_searcher(method, of), make_searcher(method, of)
    recipe = clean.ask(0, [])
    assert recipe is not None
    told.tell(synthetic.observe(0, recipe, 0.9, cause))
    assert told.ask(1, []) == clean.ask(1, [])
    assert told.describe() == clean.describe()
    assert told.best() == of.recipe


def test_max_trials_counts_told_lost_and_pending_trials(method: str, synthetic: Any) -> None:
    searcher = make_searcher(method, synthetic.problem(max_trials=3))
    recipe = searcher.ask(0, [])
    assert recipe is not None
    searcher.tell(synthetic.observe(0, recipe, None, Cause.NODE_FAILURE))
    again = searcher.ask(1, [])
    assert again is not None
    searcher.tell(synthetic.observe(1, again))
    if method != "recipe":
        third = searcher.ask(2, [])
        assert third is not None
        assert searcher.ask(3, [synthetic.pend(third)]) is None


@pytest.mark.parametrize("score", [None, math.nan, math.inf])
@pytest.mark.parametrize("cause", [Cause.DIVERGED, Cause.OUT_OF_MEMORY, Cause.FAILED])
def test_a_failed_configuration_is_never_asked_again_nor_recommended(
    method: str, cause: Cause, score: float | None, synthetic: Any
) -> None:
    of = synthetic.problem()
    searcher = make_searcher(method, of)
    recipe = searcher.ask(0, [])
    assert recipe is not None
    searcher.tell(synthetic.observe(0, recipe, score, cause))
    following = searcher.ask(1, [])
    assert following is None or (following.config, following.fidelity) != (recipe.config, recipe.fidelity)
    assert searcher.describe()["failures"] == 1
    assert searcher.best() == of.recipe


def test_replaying_the_tells_gives_the_same_next_proposal(method: str, synthetic: Any) -> None:
    of = synthetic.problem(max_trials=9)
    study = synthetic.simulate(of, method)
    again = make_searcher(method, synthetic.problem(max_trials=12))
    for observation in study.observations:
        again.tell(observation)
    extended = make_searcher(method, synthetic.problem(max_trials=12))
    for observation in study.observations:
        extended.tell(observation)
        extended.ask(observation.trial + 1, [])
    assert again.ask(9, []) == extended.ask(9, [])
    assert again.best() == study.searcher.best()


def test_a_recipe_without_a_value_for_a_dimension_is_refused(synthetic: Any) -> None:
    with pytest.raises(StudyError, match="recipe: the recipe lacks kl_coef, rollouts"):
        synthetic.problem(recipe={"learning_rate": 1e-6, "lr_scheduler": "constant"})


def test_values_of_the_recipe_beyond_the_space_go_into_every_proposal(method: str, synthetic: Any) -> None:
    of = synthetic.problem()
    of = synthetic.problem(recipe={**of.recipe, "grad_clip": np.float64(1.0)})
    searcher, pending = make_searcher(method, of), []
    for number in range(7):
        proposal = searcher.ask(number, pending)
        if proposal is not None:
            pending.append(synthetic.pend(proposal))
            assert proposal.config["grad_clip"] == 1.0
            assert all(type(value) in (float, int, str, bool) for value in proposal.config.values())


def test_a_space_of_few_points_is_searched_to_its_end(synthetic: Any) -> None:
    few = Space({"lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine", "linear"))})
    of = synthetic.problem(space=few, recipe={"lr_scheduler": "constant"}, max_trials=None)
    searcher, pending = make_searcher("random", of), []
    while (proposal := searcher.ask(len(pending), pending)) is not None:
        pending.append(synthetic.pend(proposal))
    assert {p.config["lr_scheduler"] for p in pending} == {"constant", "cosine", "linear"}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_random_recommends_the_best_at_full_budget(direction: str, synthetic: Any) -> None:
    of = synthetic.problem(direction=direction)
    searcher = make_searcher("random", of)
    asked = []
    for number, score in enumerate((0.3, 0.5, 0.4)):
        asked.append(searcher.ask(number, []))
        searcher.tell(synthetic.observe(number, asked[-1], score))
    assert searcher.best() == asked[1 if direction == "maximize" else 0].config


def test_a_stopped_trial_loses_to_one_at_full_budget(synthetic: Any) -> None:
    searcher = make_searcher("random", synthetic.problem())
    whole = searcher.ask(0, [])
    searcher.tell(synthetic.observe(0, whole, 0.3))
    proposal = searcher.ask(1, [])
    short = type(proposal)(proposal.config, Fidelity("m", 20))
    searcher.tell(synthetic.observe(1, short, 0.9, Cause.STOPPED_KL))
    assert searcher.best() == whole.config


def test_random_draws_depend_on_seed_and_number_alone(synthetic: Any) -> None:
    def drawn(seed: int, number: int) -> str:
        searcher = make_searcher("random", synthetic.problem(seed=seed))
        searcher.tell(synthetic.observe(0, searcher.ask(0, [])))
        return config_id(searcher.ask(number, []).config)

    assert drawn(1, 3) == drawn(1, 3)
    assert len({drawn(1, 3), drawn(1, 4), drawn(2, 3)}) == 3
