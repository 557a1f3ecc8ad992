from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.compare import Comparison, Estimate, better, compare, estimate
from hpcjf.analysis.load import load_run
from hpcjf.types import Cause, Config

WINNER: Config = RECIPE | {"learning_rate": 1e-5}


def compared(run: RunBuilder) -> Comparison:
    return compare(load_run(run.layout.root))


def given(side: Estimate | None) -> Estimate:
    assert side is not None
    return side


def finals(run: RunBuilder, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> None:
    for seed, test in enumerate(theirs, start=1):
        run.final(RECIPE, "recipe", seed, 0, test)
    for seed, test in enumerate(ours, start=1):
        run.final(WINNER, "final", seed, 0, test)


def test_the_mean_is_over_seeds_and_rows() -> None:
    found = estimate(np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]))
    assert found.mean == pytest.approx(5 / 8)
    assert found.by_seed == (0.75, 0.5)
    assert found.rows == 4


def test_equal_scores_have_an_interval_of_no_width() -> None:
    found = estimate(np.full((3, 20), 0.7))
    assert (found.low, found.high) == pytest.approx((0.7, 0.7))


def test_the_interval_over_rows_alone_is_that_of_a_binomial_mean() -> None:
    rows = np.array([[1.0] * 60 + [0.0] * 40])
    found = estimate(rows)
    half = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert found.low == pytest.approx(0.6 - half, abs=0.015)
    assert found.high == pytest.approx(0.6 + half, abs=0.015)


def test_the_interval_over_seeds_alone_is_that_of_their_mean() -> None:
    seeds = np.repeat(np.linspace(0, 1, 40)[:, None], 50, axis=1)
    half = 1.96 * seeds[:, 0].std() / 40**0.5
    found = estimate(seeds)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.02)


def test_both_kinds_of_noise_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((1, 100))
    seeds = rng.standard_normal((10, 1)) * 0.3

    def width(scores: np.ndarray) -> float:
        found = estimate(scores)
        return found.high - found.low

    both = width(rows + seeds)
    assert both > width(np.repeat(rows, 10, axis=0)) > 0
    assert both > width(np.repeat(seeds, 100, axis=1)) > 0


def test_two_estimates_of_the_same_scores_agree() -> None:
    scores = np.random.default_rng(0).random((3, 30))
    assert estimate(scores) == estimate(scores)


def test_winner_recipe_and_difference(run: RunBuilder) -> None:
    finals(run, [[1, 1, 1, 0], [1, 1, 0, 0]], [[1, 0, 0, 0], [1, 0, 1, 0]])
    found = compared(run)
    assert given(found.winner).mean == pytest.approx(5 / 8)
    assert given(found.recipe).mean == pytest.approx(3 / 8)
    assert given(found.difference).mean == pytest.approx(2 / 8)
    assert given(found.difference).by_seed == (0.5, 0.0)
    assert not found.winner_is_recipe
    assert found.winner_config == WINNER


def test_pairing_by_row_removes_what_both_sides_share(run: RunBuilder) -> None:
    hard = np.tile([0.0, 1.0], 50)
    finals(run, [(hard + 0.1).tolist()] * 2, [hard.tolist()] * 2)
    found = compared(run)
    assert given(found.winner).high - given(found.winner).low > 0.1
    assert (given(found.difference).low, given(found.difference).high) == pytest.approx((0.1, 0.1))


def test_pairing_by_seed_removes_what_both_sides_share(run: RunBuilder) -> None:
    finals(run, [[0.3] * 9, [0.8] * 9], [[0.2] * 9, [0.7] * 9])
    found = given(compared(run).difference)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))


def test_seeds_are_paired_by_number_not_by_order(run: RunBuilder) -> None:
    for seed, test in ((2, [0.7] * 5), (1, [0.2] * 5)):
        run.final(RECIPE, "recipe", seed, 0, test)
    for seed, test in ((1, [0.3] * 5), (2, [0.9] * 5)):
        run.final(WINNER, "final", seed, 0, test)
    assert given(compared(run).difference).by_seed == pytest.approx((0.1, 0.2))


def test_one_seed_is_said_to_be_an_interval_over_prompts_only(run: RunBuilder) -> None:
    finals(run, [[1, 0, 1]], [[1, 0, 0]])
    found = compared(run)
    assert "interval over 3 test prompts only" in given(found.winner).spans
    assert found.notes == ()


def test_few_seeds_are_said_to_give_a_rough_interval(run: RunBuilder) -> None:
    finals(run, [[1, 0]] * 3, [[1, 0]] * 3)
    found = compared(run)
    assert given(found.winner).spans == "interval over 3 training seeds and 2 test prompts"
    assert "too narrow" in found.notes[0]


def test_a_seed_that_one_side_lacks_is_left_out_of_the_difference(run: RunBuilder) -> None:
    finals(run, [[1, 1], [0, 0]], [[0, 1]])
    failed = run.trial(RECIPE, "large", 90, seed=2, purpose="recipe")
    run.submit(failed)
    run.end(failed, 10, 0, cause=Cause.OUT_OF_MEMORY)
    found = compared(run)
    assert given(found.winner).mean == pytest.approx(0.5)
    assert given(found.difference).mean == pytest.approx(0.5)
    assert "Seed 2 of the recipe ended with out_of_memory and is left out." in found.notes
    assert any("1 training seed(s)" in note for note in found.notes)


def test_other_numbers_of_rows_are_not_compared(run: RunBuilder) -> None:
    finals(run, [[1, 1, 0]], [[0, 1]])
    found = compared(run)
    assert found.difference is None
    assert "different numbers of test rows" in found.notes[0]


def test_no_common_seed_gives_no_difference(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [1, 0])
    run.final(WINNER, "final", 2, 0, [1, 0])
    found = compared(run)
    assert found.difference is None
    assert "no training seed in common" in found.notes[0]


def test_the_base_model_is_scored_over_rows(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [1, 1, 1, 0], base=[0, 1, 0, 0])
    found = given(compared(run).base)
    assert found.mean == 0.25
    assert len(found.by_seed) == 1


def test_a_winner_that_is_the_recipe_is_said_to_be(run: RunBuilder) -> None:
    run.incumbent(0, RECIPE, 0.5)
    run.final(RECIPE, "recipe", 1, 0, [1, 0, 1, 1])
    found = compared(run)
    assert found.winner_is_recipe
    assert found.difference is None
    assert given(found.winner).mean == given(found.recipe).mean == 0.75


def test_an_incumbent_that_is_the_recipe_is_known_before_the_finals(run: RunBuilder) -> None:
    run.incumbent(0, RECIPE, 0.5)
    assert compared(run).winner_is_recipe
    run.incumbent(1, WINNER, 0.6)
    assert not compared(run).winner_is_recipe


def test_the_incumbent_stands_for_the_winner_until_the_finals(run: RunBuilder) -> None:
    run.incumbent(0, WINNER, 0.6)
    found = compared(run)
    assert found.winner_config == WINNER
    assert found.winner is found.recipe is found.difference is None


def test_a_final_that_is_still_running_is_not_counted(run: RunBuilder) -> None:
    finals(run, [[1, 1]], [[0, 1]])
    run.submit(run.trial(WINNER, "large", 90, seed=2, purpose="final"))
    assert given(compared(run).winner).by_seed == (1.0,)


def test_nothing_is_known_of_an_empty_run(run: RunBuilder) -> None:
    found = compared(run)
    assert found.winner_id is None
    assert not found.winner_is_recipe


@pytest.mark.parametrize(
    ("low", "high", "direction", "expected"),
    [
        (0.1, 0.3, "maximize", True),
        (-0.3, -0.1, "maximize", False),
        (-0.1, 0.3, "maximize", None),
        (0.0, 0.3, "maximize", None),
        (0.1, 0.3, "minimize", False),
        (-0.3, -0.1, "minimize", True),
    ],
)
def test_better_needs_an_interval_without_zero(low: float, high: float, direction: str, expected: bool | None) -> None:
    assert better(Estimate((low + high) / 2, low, high, (0.0,), 1), direction) is expected
