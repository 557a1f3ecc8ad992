from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.halving import brackets
from hpcjf.types import Cause, Fidelity, Proposal

PUBLISHED = [
    [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    [(27, 3), (9, 9), (3, 27), (1, 81)],
    [(9, 9), (3, 27), (1, 81)],
    [(6, 27), (2, 81)],
    [(5, 81)],
]
"""Table 1 of Li et al. (2018): R = 81, η = 3, brackets s = 4 … 0, configurations and budget of each rung."""


def test_brackets_are_those_of_the_published_table() -> None:
    made = brackets((1, 3, 9, 27, 81), 3)
    assert [list(zip(bracket.sizes, bracket.budgets, strict=True)) for bracket in made] == PUBLISHED


def test_every_bracket_ends_with_a_configuration_at_full_budget() -> None:
    for eta in (2.0, 2.5, 3.0, 4.0):
        for bracket in brackets((10, 30, 90), eta):
            assert bracket.sizes[-1] >= 1
            assert bracket.budgets[-1] == 90
            assert list(bracket.sizes) == sorted(bracket.sizes, reverse=True)


def test_one_budget_leaves_brackets_of_one_trial() -> None:
    assert [bracket.sizes for bracket in brackets((90,), 3)] == [(1,)]


class Race:
    """A searcher whose trials end when a test says so."""

    def __init__(self, synthetic: Any, method: str = "sha", **changes: Any) -> None:
        self.synthetic = synthetic
        self.problem = synthetic.problem(max_trials=None, **changes)
        self.searcher = make_searcher(method, self.problem)
        self.asked: list[Proposal] = []
        self.flying: list[int] = []

    def ask(self) -> Proposal | None:
        pending = [self.synthetic.pend(self.asked[number]) for number in self.flying]
        proposal = self.searcher.ask(len(self.asked), pending)
        if proposal is not None:
            self.flying.append(len(self.asked))
            self.asked.append(proposal)
        return proposal

    def end(
        self, number: int, score: float | None = 0.3, cause: Cause = Cause.COMPLETED, steps: int | None = None
    ) -> None:
        proposal = self.asked[number]
        observation = self.synthetic.observe(number, proposal, score, cause)
        reached = Fidelity(proposal.fidelity.model, steps or proposal.fidelity.steps)
        self.searcher.tell(replace(observation, fidelity=reached))
        self.flying.remove(number)

    def run(self, scores: list[float]) -> list[Proposal]:
        """Ask for and end as many trials, one after the other."""
        for score in scores:
            assert self.ask()
            self.end(len(self.asked) - 1, score)
        return self.asked[-len(scores) :]


NINE = [0.11, 0.15, 0.12, 0.19, 0.13, 0.18, 0.14, 0.17, 0.16]


def test_a_third_goes_on_from_its_checkpoint(synthetic: Any) -> None:
    race = Race(synthetic)
    first = race.run(NINE)
    assert {p.fidelity for p in first} == {Fidelity("m", 10)}
    second = race.run([0.2, 0.4, 0.3])
    assert [p.config for p in second] == [first[3].config, first[5].config, first[7].config]
    assert {p.fidelity for p in second} == {Fidelity("m", 30)}
    (last,) = race.run([0.5])
    assert (last.config, last.fidelity) == (second[1].config, Fidelity("m", 90))
    assert [p.why["resumed_from"] for p in (first[0], second[0], last)] == [0, 10, 30]
    assert last.why == {"reason": "promotion", "bracket": 0, "rung": 2, "rank": 1, "resumed_from": 30}
    assert race.searcher.best() == last.config


def test_the_best_is_sought_at_the_highest_budget_reached(synthetic: Any) -> None:
    race = Race(synthetic)
    race.run(NINE)
    assert race.searcher.best() == race.asked[3].config
    race.run([0.01])
    race.run([0.02])
    assert race.searcher.best() == race.asked[5].config


def test_the_next_bracket_begins_when_one_is_over(synthetic: Any) -> None:
    race = Race(synthetic)
    race.run([*NINE, 0.2, 0.4, 0.3, 0.5])
    following = race.ask()
    assert following is not None
    assert (following.why["bracket"], following.why["rung"], following.fidelity.steps) == (1, 0, 10)


def test_a_rung_waits_for_its_last_trial(synthetic: Any) -> None:
    race = Race(synthetic)
    for _ in range(9):
        race.ask()
    for number in range(8):
        race.end(number, NINE[number])
        assert race.ask() is None
    race.end(8, 0.99)
    promoted = race.ask()
    assert promoted is not None
    assert promoted.config == race.asked[8].config


def test_hyperband_begins_the_next_bracket_meanwhile(synthetic: Any) -> None:
    race = Race(synthetic, "hyperband")
    for _ in range(9 + 3 + 3 + 9):
        race.ask()
    assert [p.why["bracket"] for p in race.asked] == [0] * 9 + [1] * 3 + [2] * 3 + [3] * 9
    assert [p.fidelity.steps for p in race.asked] == [10] * 9 + [30] * 3 + [90] * 3 + [10] * 9
    for number in range(12):
        race.end(number, number / 100)
    promoted = [race.ask() for _ in range(4)]
    assert [(p.why["bracket"], p.why["rung"], p.config) for p in promoted if p] == [
        (0, 1, race.asked[8].config),
        (0, 1, race.asked[7].config),
        (0, 1, race.asked[6].config),
        (1, 1, race.asked[11].config),
    ]


@pytest.mark.parametrize("cause", [Cause.STOPPED_KL, Cause.DIVERGED, Cause.OUT_OF_MEMORY, Cause.CANCELLED_BY_OTHER])
def test_what_did_not_get_there_is_the_worst_of_its_rung(cause: Cause, synthetic: Any) -> None:
    race = Race(synthetic)
    race.run(NINE[:8])
    race.ask()
    race.end(8, 0.99, cause, steps=4)
    promoted = race.run([0.2, 0.2, 0.2])
    assert [p.config for p in promoted] == [race.asked[number].config for number in (3, 5, 7)]


def test_a_promotion_that_somebody_cancelled_is_not_asked_again(synthetic: Any) -> None:
    race = Race(synthetic)
    race.run(NINE)
    race.ask()
    race.end(9, None, Cause.CANCELLED_BY_OTHER, steps=15)
    assert [p.config for p in race.run([0.2, 0.2])] == [race.asked[number].config for number in (5, 7)]


def test_of_equal_scores_the_earlier_goes_on_whichever_ended_first(synthetic: Any) -> None:
    race = Race(synthetic)
    for _ in range(9):
        race.ask()
    for number in reversed(range(9)):
        race.end(number, 0.3)
    assert [race.ask().config for _ in range(3)] == [race.asked[number].config for number in range(3)]


def test_a_rung_of_failures_promotes_what_is_left(synthetic: Any) -> None:
    race = Race(synthetic)
    for number in range(9):
        race.ask()
        race.end(number, None if number else 0.1, Cause.COMPLETED if number == 0 else Cause.OUT_OF_MEMORY)
    promoted = race.ask()
    assert promoted is not None
    assert promoted.config == race.asked[0].config
    race.end(9)
    following = race.ask()
    assert following is not None
    assert (following.config, following.fidelity.steps) == (race.asked[0].config, 90)


def test_the_place_of_a_lost_trial_is_free_again(synthetic: Any) -> None:
    race = Race(synthetic)
    race.run(NINE[:8])
    race.ask()
    race.end(8, None, Cause.NODE_FAILURE)
    (again,) = race.run([0.99])
    assert (again.why["bracket"], again.why["rung"]) == (0, 0)
    (promoted,) = race.run([0.2])
    assert promoted.config == again.config
    lost = race.ask()
    assert lost is not None
    race.end(len(race.asked) - 1, None, Cause.PREEMPTED)
    assert race.ask() == lost


def test_no_configuration_is_in_two_brackets(synthetic: Any) -> None:
    of = synthetic.problem(max_trials=120)
    for method in ("hyperband", "bohb"):
        proposals = synthetic.simulate(of, method).proposals
        first = [p for p in proposals if p.why["rung"] == 0]
        assert len({config_id(p.config) for p in first}) == len(first)
        places = {(config_id(p.config), p.why["bracket"]) for p in proposals}
        assert len(places) == len(first)
