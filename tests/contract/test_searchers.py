"""What every method promises, whatever it is."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcjf.core.lifecycle import replay
from hpcjf.core.searchers import Pending, Searcher, SearchProblem, make_searcher
from hpcjf.core.space import Space
from hpcjf.errors import StudyError
from hpcjf.study import Categorical, Method, RealRange
from hpcjf.types import Cause, Fidelity, Observation, Proposal, Purpose

METHODS = get_args(Method)
FAILURES = [Cause.DIVERGED, Cause.OUT_OF_MEMORY, Cause.FAILED]
Ending = Callable[[int, Proposal], Observation]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def trials(method: str) -> int:
    """Enough for every phase of a method; fitting Gaussian processes takes its time."""
    return 9 if method == "jfhpo" else 40


def completed(number: int, proposal: Proposal) -> Observation:
    return synthetic.observe(number, proposal, synthetic.true_score(proposal.config, proposal.fidelity))


def troubled(number: int, proposal: Proposal) -> Observation:
    """Every second trial ends badly, in every way there is; the stopped ones with a score."""
    cause = list(Cause)[number % 26 // 2] if number % 2 else Cause.COMPLETED
    if cause is Cause.COMPLETED:
        return completed(number, proposal)
    reached = Fidelity(proposal.fidelity.model, proposal.fidelity.steps // 2)
    score = synthetic.true_score(proposal.config, reached) if cause.stopped else None
    return replace(synthetic.observe(number, proposal, score, cause), fidelity=reached)


@dataclass
class Life:
    """A study of three jobs at a time that end in any order."""

    problem: SearchProblem
    searcher: Searcher
    proposals: list[Proposal] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    flying: dict[int, Pending] = field(default_factory=dict)

    def ask(self) -> bool:
        pending = list(self.flying.values())
        proposal = self.searcher.ask(len(self.proposals), pending)
        if proposal is None:
            return False
        assert self.searcher.ask(len(self.proposals), pending) == proposal
        self.flying[len(self.proposals)] = synthetic.pend(proposal)
        self.proposals.append(proposal)
        return True

    def end(self, number: int, ending: Ending) -> None:
        del self.flying[number]
        self.observations.append(ending(number, self.proposals[number]))
        self.searcher.tell(self.observations[-1])

    def steps(self, ending: Ending, most: int = 200) -> Iterator[None]:
        """Yields after every answer of the searcher."""
        order = random.Random(1)
        while len(self.proposals) < most:
            while len(self.flying) < 3 and self.ask():
                yield
            if not self.flying:
                return
            self.end(order.choice(sorted(self.flying)), ending)


def born(method: str, **changes: Any) -> Life:
    of = synthetic.problem(**{"max_trials": trials(method), **changes})
    return Life(of, make_searcher(method, of))  # type: ignore[arg-type]


def lived(method: str, ending: Ending = completed, **changes: Any) -> Life:
    life = born(method, **changes)
    for _ in life.steps(ending):
        pass
    return life


def retold(life: Life, observations: list[Observation]) -> Searcher:
    searcher = type(life.searcher)(life.problem)  # type: ignore[call-arg]
    for observation in observations:
        searcher.tell(observation)
    return searcher


def test_the_recipe_comes_first(method: str) -> None:
    life = born(method)
    assert life.ask()
    assert life.proposals[0].config == life.problem.recipe
    assert life.proposals[0].why["reason"] == "recipe"


@pytest.mark.parametrize("method", [method for method in METHODS if method != "recipe"])
def test_given_configurations_follow_the_recipe(method: str) -> None:
    life = born(method, given=({"learning_rate": 1e-4}, {"rollouts": 7, "learning_rate": 1e-3}))
    for _ in range(4):
        assert life.ask()
    recipe, first, second, other = (proposal.config for proposal in life.proposals)
    assert first == {**recipe, "learning_rate": 1e-4}
    assert second == {**recipe, "learning_rate": 1e-3, "rollouts": 7}
    assert other not in (recipe, first, second)


def test_nothing_observed_recommends_the_recipe(method: str) -> None:
    life = born(method)
    assert life.searcher.best() == life.problem.recipe
    assert life.searcher.describe()["observations"] == 0


@pytest.mark.parametrize("ending", [completed, troubled])
def test_a_study_asks_for_nothing_twice_nothing_closed_and_nothing_outside_the_space(
    method: str, ending: Ending
) -> None:
    life, asked, closed = born(method), set(), set()
    for _ in life.steps(ending):
        proposal, pending = life.proposals[-1], list(life.flying.values())
        key = (pending[-1].config_id, proposal.fidelity.model)
        closed |= {(o.config_id, o.fidelity.model) for o in life.observations if o.cause.stopped or o.cause in FAILURES}
        lost = {o.trial for o in life.observations if o.cause.infrastructure or o.cause is Cause.CANCELLED_BY_OTHER}
        assert len({(p.config_id, p.fidelity.model) for p in pending}) == len(pending)
        assert key not in closed
        again = (*key, proposal.fidelity.steps) in asked
        assert not again or any(life.proposals[number].config == proposal.config for number in lost)
        asked.add((*key, proposal.fidelity.steps))
        assert life.problem.space.contains(proposal.config) or proposal.config == life.problem.recipe
        assert proposal.fidelity.model in ("xs", "m")
        assert proposal.fidelity.steps in life.problem.rungs
        assert all(type(value) in (float, int, str, bool) for value in proposal.config.values())
        assert all(type(value) in (float, int, str, bool) for value in proposal.why.values())
    assert len(life.proposals) == (life.problem.max_trials if method != "recipe" else 1)
    assert life.searcher.best() in [proposal.config for proposal in life.proposals]


def test_the_seed_makes_the_study(method: str) -> None:
    first = lived(method, troubled)
    assert lived(method, troubled).proposals == first.proposals
    if method != "recipe":
        assert lived(method, troubled, seed=5).proposals != first.proposals


@pytest.mark.parametrize("ended", [0, 7])
def test_the_journal_brings_the_search_back(method: str, ended: int) -> None:
    life = born(method, max_trials=None)
    for _ in life.steps(troubled):
        if len(life.observations) >= ended and len(life.flying) > 1:
            break
    state = replay(json.loads(json.dumps(list(journal(life)))))
    told = [o for t in state.of(Purpose.SEARCH) if (o := t.observation())]
    pending = [Pending(t.trial.config_id, t.trial.config, t.trial.fidelity, t.trial.why) for t in state.open_trials()]
    again = retold(life, told)
    if method != "jfhpo":  # whose Gaussian processes depend on the order of the tells in the last digits
        assert again.ask(state.next_number, pending) == life.searcher.ask(
            len(life.proposals), list(life.flying.values())
        )
    assert again.ask(state.next_number, pending) == retold(life, told).ask(state.next_number, pending)
    assert (again.best(), again.describe()) == (retold(life, told).best(), retold(life, told).describe())


def journal(life: Life) -> Iterator[dict[str, Any]]:
    """The events of the study."""
    told = {observation.trial: observation for observation in life.observations}
    for number, proposal in enumerate(life.proposals):
        purpose = {"purpose": "search", "training_seed": 0, "why": proposal.why}
        place = {"model": proposal.fidelity.model, "steps": proposal.fidelity.steps}
        which = {"config_id": synthetic.pend(proposal).config_id, "config": proposal.config}
        yield {"kind": "trial", "time": 0.0, "number": number, **purpose, **place, **which}
        yield {"kind": "attempt", "time": 0.0, "trial": number, "attempt": 1, "name": f"t{number}"}
        if number in told:
            end = told[number]
            costs = {"seconds": end.seconds, "startup_seconds": end.startup_seconds, "score": end.score}
            steps = {"step": end.fidelity.steps, "start_step": end.start_step}
            over = {"cause": end.cause, "retry": False, "detail": ""}
            yield {"kind": "ended", "time": 0.0, "trial": number, "attempt": 1, **steps, **costs, **over}


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("method", [method for method in METHODS if method != "jfhpo"])
def test_the_order_of_the_tells_does_not_matter(method: str, data: st.DataObject) -> None:
    life = born(method, max_trials=None)
    for _ in life.steps(troubled, most=data.draw(st.integers(3, 30))):
        pass
    told = retold(life, data.draw(st.permutations(life.observations)))
    pending = list(life.flying.values())
    assert told.ask(99, pending) == life.searcher.ask(99, pending)
    assert (told.best(), told.describe()) == (life.searcher.best(), life.searcher.describe())


@settings(deadline=None, max_examples=2)
@given(data=st.data())
def test_the_joint_search_survives_any_order_of_the_tells(data: st.DataObject) -> None:
    life = born("jfhpo", max_trials=None)
    for _ in life.steps(troubled, most=9):
        pass
    told = retold(life, data.draw(st.permutations(life.observations)))
    pending = list(life.flying.values())
    proposal = told.ask(99, pending)
    assert proposal is not None
    assert life.problem.space.contains(proposal.config) or proposal.config == life.problem.recipe
    assert told.best() in [proposal.config for proposal in life.proposals]


@pytest.mark.parametrize(
    ("told", "cause"), [*((0, cause) for cause in Cause if cause.infrastructure), (7, Cause.NODE_FAILURE)]
)
def test_the_infrastructures_faults_leave_no_trace_in_the_search(method: str, cause: Cause, told: int) -> None:
    life = born(method, max_trials=None)
    for number in range(told):
        if life.ask():
            life.end(number, completed)
    clean = retold(life, life.observations)
    number = len(life.proposals)
    if life.ask():
        life.end(number, lambda n, p: synthetic.observe(n, p, 0.9, cause))
    assert life.searcher.ask(number + 1, []) == clean.ask(number + 1, [])
    assert life.searcher.describe() == clean.describe()
    assert life.searcher.best() == clean.best()


def test_max_trials_counts_told_lost_and_pending_trials(method: str) -> None:
    life = born(method, max_trials=3)
    assert life.ask()
    life.end(0, lambda n, p: synthetic.observe(n, p, None, Cause.NODE_FAILURE))
    assert life.ask()
    life.end(1, completed)
    assert life.ask() is (method != "recipe")
    assert not life.ask()


@pytest.mark.parametrize("score", [None, math.nan, math.inf])
@pytest.mark.parametrize("cause", FAILURES)
def test_a_failed_configuration_is_never_asked_again_nor_recommended(
    method: str, cause: Cause, score: float | None
) -> None:
    life = born(method)
    life.ask()
    life.end(0, lambda n, p: synthetic.observe(n, p, score, cause))
    failed = life.proposals[0]
    following = life.searcher.ask(1, [])
    assert following is None or (following.config, following.fidelity) != (failed.config, failed.fidelity)
    assert life.searcher.describe()["failures"] == 1
    assert life.searcher.best() == life.problem.recipe


@pytest.mark.parametrize("cause", [*FAILURES, Cause.STOPPED_KL, Cause.STOPPED_REWARD, Cause.CANCELLED_BY_OTHER])
def test_a_study_in_which_nothing_succeeds_goes_on_to_its_end(method: str, cause: Cause) -> None:
    def end(number: int, proposal: Proposal) -> Observation:
        observation = synthetic.observe(number, proposal, None, cause)
        return replace(observation, fidelity=Fidelity(proposal.fidelity.model, 5))

    life = lived(method, end, max_trials=15)
    assert len(life.proposals) == (1 if method == "recipe" else 15)
    assert life.searcher.best() == life.problem.recipe


def test_a_space_of_two_points_is_searched_to_its_end(method: str) -> None:
    few = Space({"lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine"))})
    recipe = {**synthetic.RECIPE, "lr_scheduler": "constant"}
    life = lived(method, space=few, recipe=recipe, max_trials=None)
    assert len(life.proposals) <= 2 * 2 * 3
    found = {proposal.config["lr_scheduler"] for proposal in life.proposals}
    assert found == ({"constant"} if method == "recipe" else {"constant", "cosine"})


def test_a_space_with_conditions_and_constraints_is_kept_to(method: str) -> None:
    dimensions = {
        "learning_rate": RealRange(low=1e-6, high=1e-2, log=True),
        "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine", "linear")),
        "kl_coef": RealRange(low=1e-4, high=1e-1, log=True, when={"lr_scheduler": ("cosine", "linear")}),
    }
    space = Space(dimensions, constraints=("learning_rate * kl_coef <= 1e-5",), fixed=synthetic.RECIPE)
    life = lived(method, lambda n, p: synthetic.observe(n, p, float(p.config["learning_rate"])), space=space)
    assert len(life.proposals) >= (1 if method == "recipe" else 9)
    for config in (proposal.config for proposal in life.proposals):
        assert space.contains(config)
        assert ("kl_coef" in config) is (config["lr_scheduler"] != "constant")


def test_minimising_mirrors_maximising(method: str) -> None:
    def mirrored(number: int, proposal: Proposal) -> Observation:
        observation = troubled(number, proposal)
        return replace(observation, score=None if observation.score is None else -observation.score)

    up, down = lived(method, troubled), lived(method, mirrored, direction="minimize")
    assert [(p.config, p.fidelity) for p in up.proposals] == [(p.config, p.fidelity) for p in down.proposals]
    assert up.searcher.best() == down.searcher.best()


def test_values_of_the_recipe_beyond_the_space_go_into_every_proposal(method: str) -> None:
    life = lived(method, recipe={**synthetic.RECIPE, "grad_clip": np.float64(1.0)})
    assert {proposal.config["grad_clip"] for proposal in life.proposals} == {1.0}
    assert {type(proposal.config["grad_clip"]) for proposal in life.proposals} == {float}


def test_a_recipe_without_a_value_for_a_dimension_is_refused() -> None:
    with pytest.raises(StudyError, match="recipe: the recipe lacks kl_coef, rollouts"):
        synthetic.problem(recipe={"learning_rate": 1e-6, "lr_scheduler": "constant"})
