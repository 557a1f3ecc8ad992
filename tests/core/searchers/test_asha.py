"""Algorithm 2 of Li et al. (2020) on histories made by hand: η = 3, rungs of 10, 30 and 90 steps."""

from __future__ import annotations

from typing import Any

import pytest

from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.base import Pending
from hpcjf.types import Cause, Fidelity, Proposal


class Hand:
    """Configurations by name, each a learning rate, told at a rung; nothing of it was asked for."""

    def __init__(self, synthetic: Any) -> None:
        self.synthetic = synthetic
        self.problem = synthetic.problem(max_trials=None)
        self.searcher = make_searcher("asha", self.problem)
        self.trial = 0

    def proposal(self, name: str, rung: int) -> Proposal:
        config = self.problem.space.canonical(
            {**self.problem.recipe, "learning_rate": 1e-6 * (1 + ord(name) - ord("a"))}
        )
        return Proposal(config, Fidelity("m", self.problem.rungs[rung]), {"bracket": 0, "rung": rung})

    def tell(self, name: str, rung: int, score: float | None, cause: Cause = Cause.COMPLETED) -> None:
        self.searcher.tell(self.synthetic.observe(self.trial, self.proposal(name, rung), score, cause))
        self.trial += 1

    def ask(self, *pending: Pending) -> tuple[str, int]:
        """Name ("new" for a configuration that was not told) and rung."""
        found = self.searcher.ask(self.trial, list(pending))
        assert found is not None
        names = {self.proposal(chr(code), 0).config["learning_rate"]: chr(code) for code in range(ord("a"), ord("p"))}
        rate = found.config["learning_rate"]
        return names.get(rate, "new") if found.why["reason"] == "promotion" else "new", int(found.why["rung"])

    def pend(self, name: str, rung: int) -> Pending:
        return self.synthetic.pend(self.proposal(name, rung))


@pytest.fixture
def hand(synthetic: Any) -> Hand:
    return Hand(synthetic)


def test_nothing_is_promoted_before_a_third_is_one(hand: Hand) -> None:
    hand.tell("a", 0, 0.1)
    hand.tell("b", 0, 0.2)
    assert hand.ask() == ("new", 0)
    hand.tell("c", 0, 0.15)
    assert hand.ask() == ("b", 1)


def test_what_is_on_its_way_up_is_not_promoted_twice(hand: Hand) -> None:
    for name, score in zip("abcde", (0.1, 0.5, 0.2, 0.4, 0.3), strict=True):
        hand.tell(name, 0, score)
    assert hand.ask() == ("b", 1)
    assert hand.ask(hand.pend("b", 1)) == ("new", 0)
    hand.tell("f", 0, 0.0)
    assert hand.ask(hand.pend("b", 1)) == ("d", 1)
    hand.tell("b", 1, 0.6)
    assert hand.ask() == ("d", 1)


def test_the_highest_rung_is_served_first(hand: Hand) -> None:
    for name, score in zip("abcdefghi", range(9), strict=True):
        hand.tell(name, 0, float(score))
    for name, score in zip("ihg", (0.1, 0.3, 0.2), strict=True):
        hand.tell(name, 1, score)
    for name in "jkl":
        hand.tell(name, 0, 9.0)
    assert hand.ask() == ("h", 2)
    hand.tell("h", 2, 0.4)
    assert hand.ask() == ("j", 1)


def test_a_newcomer_is_promoted_past_an_earlier_winner(hand: Hand) -> None:
    for name, score in zip("abc", (0.1, 0.2, 0.3), strict=True):
        hand.tell(name, 0, score)
    hand.tell("c", 1, 0.4)
    for name in "def":
        hand.tell(name, 0, 0.9)
    assert hand.ask() == ("d", 1)


@pytest.mark.parametrize("cause", [Cause.STOPPED_REWARD, Cause.DIVERGED, Cause.OUT_OF_MEMORY])
def test_a_failure_counts_in_its_rung_and_is_never_promoted(cause: Cause, hand: Hand) -> None:
    hand.tell("a", 0, 0.1)
    hand.tell("b", 0, 0.9, cause)
    assert hand.ask() == ("new", 0)
    hand.tell("c", 0, None, cause)
    assert hand.ask() == ("a", 1)
    hand.tell("a", 1, 0.2)
    for name in "def":
        hand.tell(name, 0, None, cause)
    assert hand.ask() == ("new", 0)


def test_a_lost_trial_does_not_count_in_its_rung(hand: Hand) -> None:
    for name in "abc":
        hand.tell(name, 0, 0.1 if name != "c" else None, Cause.COMPLETED if name != "c" else Cause.PREEMPTED)
    assert hand.ask() == ("new", 0)
