"""The figures of finished races."""

from __future__ import annotations

import pytest

from race.cases import Case
from race.figures import Board, best_or_tied, figures, near_proxies, price_of_misleading, typical
from race.outcome import Outcome, Point
from race.tables import races

A, B = Case("mfh3", "A"), Case("mfh3", "B")
CASES = [A, B, Case("mfh6", "A")]


def outcome(
    method: str, seed: int, *points: tuple[float, float], problem: str = "mfh3", ratio: float = 1, per_trial: float = 10
) -> tuple[str, Outcome]:
    """Points as (cost at which it is trained, truth); the recipe's training costs 10 and has 0.2 of 1."""
    known = tuple(Point(cost, cost, truth, {}) for cost, truth in [(10.0, 0.2), *points])
    facts = {"cost": 10 * per_trial, "configurations": 10, "jobs": 10, "steps": 10}
    return problem, Outcome(problem, method, seed, 200.0, ratio > 1, ratio, (0.0, 1.0), known, **facts)


def test_a_comparison_pairs_the_seeds_that_both_have() -> None:
    board = Board(
        [outcome("jfhpo", s, (50, 0.6)) for s in (0, 1, 2)] + [outcome("bohb", s, (50, 0.5)) for s in (1, 2, 3)]
    )
    assert [(a.seed, b.seed) for a, b in board.pairs("mfh3", "jfhpo", "bohb")] == [(1, 1), (2, 2)]
    assert board.advantage("mfh3", "jfhpo", "bohb") == pytest.approx((0.1, 0.1, 0.1))
    assert board.advantage("mfh3", "jfhpo", "random") is None


def test_how_much_sooner_the_final_score_of_another_is_reached() -> None:
    ours = [outcome("jfhpo", s, (20, 0.5), (100, 0.9)) for s in (0, 1, 2)]
    others = [outcome("random", 0, (80, 0.4)), outcome("random", 1, (150, 0.8)), outcome("random", 2, (100, 0.95))]
    board = Board([*ours, *others])
    # 80 / 20, 150 / 100, never
    assert board.cost_ratio("mfh3", "jfhpo", "random") == pytest.approx(1.5)
    assert board.reached("mfh3", "jfhpo", "random") == pytest.approx(2 / 3)


def test_time_per_trial_is_compared_over_all_seeds() -> None:
    board = Board([outcome("jfhpo", 0, per_trial=2), outcome("random", 0, per_trial=30), outcome("jfhpo", 1)])
    assert board.time_ratio("mfh3", "jfhpo", "random") == pytest.approx(15)


def test_a_case_takes_the_seeds_of_its_block() -> None:
    ours = [outcome("jfhpo", s, (50, 0.6)) for s in (0, 1, 1000)]
    board = Board([*ours, *(outcome("tpe", s, (50, 0.5 if s < 1000 else 0.7)) for s in (0, 1, 1000))])
    assert board.verdicts(CASES, "jfhpo", "tpe") == {A: "win", B: "loss"}


def test_best_or_tied_is_against_all_at_once() -> None:
    ours = [outcome("jfhpo", s, (50, 0.6)) for s in (0, 1000)]
    others = [outcome("tpe", 0, (50, 0.605)), outcome("tpe", 1000, (50, 0.6)), outcome("bohb", 0, (50, 0.4))]
    board = Board([*ours, *others, outcome("jfhpo-no-proxy", 1000, (50, 0.9))])
    assert board.opponents == ["tpe", "bohb"]
    assert best_or_tied(board, CASES, "jfhpo", board.opponents) == {A: False, B: True}
    assert figures(board, CASES) == {"cases": 2, "cases_best_or_tied": 1}


def test_the_claims_rest_on_surfaces_with_a_near_proxy() -> None:
    near = [
        outcome(m, 0, (50, 0.6), problem="near", ratio=10.7, per_trial=t) for m, t in (("jfhpo", 1), ("random", 20))
    ]
    far = [outcome(m, 0, (50, 0.6), problem="far", ratio=40) for m in ("jfhpo", "random")]
    board = Board([*near, *far])
    assert near_proxies(board) == ["near"]
    assert figures(board, [])["time_per_trial_ratio_random"] == pytest.approx(20)
    assert figures(board, [])["cost_to_target_ratio_random"] == pytest.approx(1)


def test_regret_and_price_of_a_misleading_proxy() -> None:
    misled = [
        outcome("jfhpo", s, (90, 0.6 + s / 10), (150, 1.0), problem="arithmetic xs>m", ratio=10.5) for s in (0, 1, 2)
    ]
    board = Board([*misled, *(outcome("jfhpo", s, (40, 0.9), problem="arithmetic s>m", ratio=2.4) for s in (0, 1, 2))])
    assert figures(board, [])["misleading_proxy_regret"] == pytest.approx(0.3)
    assert price_of_misleading(board) == pytest.approx((5, 5, 5))


def test_ranks_count_the_seeds_that_all_have() -> None:
    board = Board([outcome(m, s, (50, t)) for m, t in (("a", 0.5), ("b", 0.9), ("c", 0.5)) for s in (0, 1)])
    assert {m: rank.mean for m, rank in board.ranks(["a", "b", "c"]).items()} == {"a": 2.5, "b": 1, "c": 2.5}
    assert board.ranks(["a", "unknown"]) == {}


def test_a_typical_ratio_is_the_geometric_mean_and_forgives_no_zero() -> None:
    assert typical([2, None, 8]) == pytest.approx(4)
    assert typical([2, 0]) == 0
    assert typical([None]) is None


def test_the_tables_hold_every_method_and_case() -> None:
    known = [outcome(m, s, (50, t)) for m, t in (("jfhpo", 0.6), ("random", 0.5), ("bohb", 0.7)) for s in (0, 1000)]
    text = "\n".join(races(Board(known), CASES))
    assert "best or tied against all at once in 0 of 2 cases" in text
    assert "| random | 2 | 0 | 0 |" in text
    assert "| mfh3 B | bohb |  |" in text
    assert "| jfhpo | 40 [40, 40] |" in text
    assert "| mfh3 | 1 (100%) | 0 (0%) |" in text
