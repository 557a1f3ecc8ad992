from __future__ import annotations

from pathlib import Path

import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import load_run
from hpcjf.analysis.transfer import Transfer, scatter, sentence, transfer, warning
from hpcjf.types import Fidelity


def checked(run: RunBuilder) -> tuple[Transfer, ...]:
    return transfer(load_run(run.layout.root))


def scored(
    run: RunBuilder, rollouts: int, model: str, steps: int, score: float, at: float = 0, seconds: float = 100.0
) -> None:
    """A search trial from ``at`` to ``at`` + 1."""
    trial = run.trial(RECIPE | {"rollouts": rollouts}, model, steps, at)
    run.submit(trial, at)
    run.end(trial, at + 1, steps, score=score, seconds=seconds, startup=0.0)


def both(run: RunBuilder, scores: list[tuple[float, float]], large_seconds: float = 100.0) -> None:
    """Configurations scored on both models, one after the other from time 0 on, ten seconds each."""
    for place, (small, large) in enumerate(scores):
        scored(run, 2 + place, "small", 10, small, 10 * place)
        scored(run, 2 + place, "large", 10, large, 10 * place + 5, large_seconds)


ALIKE = [(0.1, 0.2), (0.2, 0.1), (0.3, 0.4), (0.4, 0.5), (0.5, 0.6)]
UNLIKE = [(0.1, 0.4), (0.2, 0.5), (0.3, 0.3), (0.4, 0.2), (0.5, 0.1)]


def test_configurations_seen_on_both_models_are_ranked(run: RunBuilder) -> None:
    both(run, ALIKE)
    scored(run, 9, "small", 10, 0.9)
    [check] = checked(run)
    assert (check.proxy, check.target) == (Fidelity("small", 10), Fidelity("large", 10))
    assert list(check.pairs.values()) == ALIKE
    found = check.agreement
    assert found.count == 5
    assert found.spearman is not None
    assert found.kendall is not None
    assert found.spearman.value == pytest.approx(0.9)
    assert found.kendall.value == pytest.approx(8 / 10)
    assert sentence(check).startswith("small at 10 steps → large at 10 steps: unclear. Spearman 0.90 [")
    assert sentence(check).endswith("over 5 configurations scored on both.")
    assert warning(check) == ""


def test_budgets_are_not_mixed(run: RunBuilder) -> None:
    both(run, [(0.1 * place, 0.1 * place) for place in range(5)])
    scored(run, 2, "small", 90, 0.95)
    [check] = checked(run)
    assert check.proxy.steps == 10
    assert check.agreement.verdict == "high"


def test_four_are_too_few_to_say(run: RunBuilder) -> None:
    both(run, UNLIKE[:4])
    [check] = checked(run)
    assert (check.agreement.count, check.agreement.spearman) == (4, None)
    assert sentence(check).endswith("4 configurations scored on both, too few to say.")
    assert warning(check) == ""


def test_equal_scores_rank_nothing(run: RunBuilder) -> None:
    both(run, [(0.1 * place, 0.5) for place in range(5)])
    assert sentence(checked(run)[0]).endswith("but one side's scores are all equal.")


def test_without_a_target_score_there_is_nothing_to_check(run: RunBuilder) -> None:
    scored(run, 2, "small", 10, 0.1)
    assert checked(run) == ()
    assert scatter(load_run(run.layout.root), ()) is None


class TestLow:
    def test_the_warning_says_how_the_cost_moved(self, run: RunBuilder) -> None:
        both(run, UNLIKE, large_seconds=25.0)
        scored(run, 12, "small", 10, 0.5, at=60)
        scored(run, 13, "large", 10, 0.5, at=61, seconds=300.0)
        [check] = checked(run)
        assert check.agreement.verdict == "low"
        assert check.shift is not None
        assert check.shift.trial == 10
        assert check.shift.before == pytest.approx({"small": 0.8, "large": 0.2})
        assert check.shift.since == pytest.approx({"small": 0.25, "large": 0.75})
        assert warning(check) == (
            "small ranks configurations unlike large: what wins there says little here. Job time by model before "
            "trial 10: small 80 %, large 20 %; from it on: small 25 %, large 75 %: the search moved to larger models."
        )

    def test_a_search_that_stays_is_said_to_stay(self, run: RunBuilder) -> None:
        both(run, UNLIKE)
        scored(run, 12, "small", 10, 0.5, at=60)
        assert "the search did not move to larger models." in warning(checked(run)[0])

    def test_it_counts_from_the_moment_that_it_was_known(self, run: RunBuilder) -> None:
        both(run, [*UNLIKE, (0.6, 0.05), (0.7, 0.6)])
        [check] = checked(run)
        assert check.shift is not None
        assert check.shift.trial == 10, "five configurations were enough"

    def test_a_search_that_was_over_by_then(self, run: RunBuilder) -> None:
        both(run, UNLIKE)
        [check] = checked(run)
        assert check.shift is None
        assert warning(check).endswith("No search trial was chosen after that was known.")


def test_three_models_give_two_checks_and_two_panels(tmp_path: Path) -> None:
    models = [{"name": name, "path": "builtin:tiny-s"} for name in ("xs", "s", "m")]
    run = RunBuilder(tmp_path / "run", {"models": models})
    for place in range(5):
        for model, score in (("xs", -0.1 * place), ("s", 0.1 * place), ("m", 0.1 * place)):
            scored(run, 2 + place, model, 10, score, 10 * place)
    scored(run, 9, "s", 10, 0.1, at=100)
    checks = checked(run)
    assert [(check.proxy.model, check.agreement.verdict) for check in checks] == [("xs", "low"), ("s", "high")]
    assert checks[0].moved, "s is larger than xs"
    fig = scatter(load_run(run.layout.root), checks)
    assert fig is not None
    assert [trace.y for trace in fig.data] == [(0.0, 0.1, 0.2, pytest.approx(0.3), 0.4)] * 2
    assert fig.layout.xaxis2.title.text == "score of s at 10 steps"
