from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcjf.analysis import why
from hpcjf.analysis.why import explain
from hpcjf.study import SearchSection
from hpcjf.types import Fidelity, Purpose, Scalar, Trial

CORE = Path(why.__file__).parents[1] / "core" / "searchers"


def said(search: SearchSection | None = None, **figures: Scalar) -> list[str]:
    trial = Trial(7, "c0ffee", {"learning_rate": 1e-5}, Fidelity("m", 90), 0, Purpose.SEARCH, figures)
    return explain(trial, search or SearchSection())


ACQUIRED: dict[str, Scalar] = {
    "reason": "acquisition",
    "expected_improvement": 0.02,
    "marginal_cost_s": 360.0,
    "target_mean": 0.61234,
    "target_std": 0.05,
    "feasible": 0.97,
    "candidates": 1234,
    "resumed_from": 0,
}


def test_an_acquisition_in_words() -> None:
    assert said(**ACQUIRED) == [
        "It promised the largest gain for its cost.",
        "It starts from the base weights: 90 steps to run on m.",
        "Expected gain of the target's posterior mean at full budget: 0.02.",
        "Expected cost, start-up and the steps still to run: 6 min; gain per hour: 0.2.",
        "Expected score of the target at full budget: 0.6123 ± 0.05.",
        "Probability that it gives a score at all: 0.97.",
        "Candidates that were weighed, each with its model and budget: 1234.",
    ]


def test_the_papers_gain_is_another_one() -> None:
    lines = said(SearchSection(acquisition="paper"), **ACQUIRED)
    assert lines[2] == "Expected improvement over the incumbent at full budget: 0.02."


def test_a_deterministic_study_counts_tokens() -> None:
    lines = said(SearchSection(deterministic=True), **ACQUIRED, told=5)
    assert lines[3].endswith("still to run: 360 tokens of the target; gain per million: 55.56.")
    assert lines[-1] == "It was chosen knowing the 5 trials before number 5, and no other."


def test_a_promotion_says_where_it_goes_on() -> None:
    lines = said(reason="promotion", bracket=1, rung=2, rank=0, resumed_from=30)
    assert lines == [
        "Its configuration did well enough at a smaller budget to get a larger one.",
        "It goes on from the checkpoint at step 30: 60 steps to run on m.",
        "Bracket 1, rung 2, both counted from 0.",
        "Its rank in the rung below: 0.",
    ]


def test_the_agreement_of_proxy_and_target() -> None:
    words = "A smaller model and the target agreed by a Spearman correlation of 0.25"
    assert said(reason="acquisition", transfer_spearman=0.25, transfer_count=7)[1:] == [
        f"{words} over 7 configurations, at worst."
    ]
    assert said(reason="larger model", transfer_spearman=0.25)[1:] == [f"{words}, at worst."]


def test_figures_that_no_sentence_knows_are_named() -> None:
    assert said(reason="a whim", bracket=1, novelty=0.123456) == ["Reason: a whim.", "bracket: 1", "novelty: 0.1235"]
    assert said() == ["Reason: none was given."]


def test_a_cost_of_nothing_has_no_ratio() -> None:
    assert "still to run: 0 s." in said(**ACQUIRED | {"marginal_cost_s": 0.0})[3]


REASONS = ["recipe", "given", "initial design", "random", "grid", "model", "acquisition", "promotion", "target probe"]
REASONS += ["full run", "larger model", "exploration", "the recipe to beat", "the search's winner"]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_its_sentence(reason: str) -> None:
    [line] = said(reason=reason)
    assert not line.startswith("Reason:")


def test_no_searcher_gives_a_reason_without_a_sentence() -> None:
    text = "".join(path.read_text() for path in CORE.glob("*.py"))
    named = set(re.findall(r'"reason": "([a-z ]+)"', text))
    assert {"recipe", "random", "promotion"} <= named <= set(REASONS)
