from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.grid import levels, spread
from hpcjf.core.space import Space
from hpcjf.study import Categorical, IntegerRange, RealRange
from hpcjf.types import Cause

DIMENSIONS = {
    "learning_rate": RealRange(low=1e-6, high=1e-2, log=True),
    "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine", "linear")),
    "rollouts": IntegerRange(type="integer", low=4, high=6),
}


@pytest.mark.parametrize(
    ("points", "counts"), [(1, (2, 3, 2)), (12, (2, 3, 2)), (13, (3, 3, 2)), (19, (3, 3, 3)), (28, (4, 3, 3))]
)
def test_resolution_grows_with_the_trials_until_they_are_used(points: int, counts: tuple[int, ...]) -> None:
    assert tuple(len(values) for values in levels(DIMENSIONS, points).values()) == counts


def test_levels_go_from_end_to_end() -> None:
    grid = levels(DIMENSIONS, 28)
    assert grid["learning_rate"] == pytest.approx([1e-6, 10 ** (-14 / 3), 10 ** (-10 / 3), 1e-2])
    assert grid["rollouts"] == [4, 5, 6]
    assert grid["lr_scheduler"] == ("constant", "cosine", "linear")


def test_integers_are_distinct_however_fine_the_grid() -> None:
    dimensions = {"rollouts": IntegerRange(type="integer", low=2, high=16, log=True)}
    assert levels(dimensions, 15)["rollouts"] == list(range(2, 17))
    assert levels(dimensions, 1000)["rollouts"] == list(range(2, 17))
    assert levels(dimensions, 5)["rollouts"] == [2, 3, 6, 10, 16]


def whole(synthetic: Any, **changes: Any) -> list[Any]:
    return synthetic.simulate(synthetic.problem(space=Space(DIMENSIONS), **changes), "grid").proposals


def test_the_whole_factorial_is_run_once(synthetic: Any) -> None:
    proposals = whole(synthetic, max_trials=1 + 27)
    points = {(p.config["learning_rate"], p.config["lr_scheduler"], p.config["rollouts"]) for p in proposals[1:]}
    assert len(points) == 27
    assert {p.fidelity.steps for p in proposals} == {90}


def test_without_a_number_of_trials_the_grid_ends_by_itself(synthetic: Any) -> None:
    assert len(whole(synthetic, max_trials=None)) == 1 + 12 * 3 * 3


def unevenness(order: Any, counts: tuple[int, ...]) -> float:
    """How much more often a prefix has its commonest level than its rarest, on average."""
    ends = range(4, len(order) // 2)
    found = [np.bincount(order[:end, j], minlength=count) for end in ends for j, count in enumerate(counts)]
    return float(np.mean([levels.max() - levels.min() for levels in found]))


@pytest.mark.parametrize("counts", [(4, 3, 3), (3, 3, 2, 2, 2, 2), (10, 10), (4, 2, 9)])
def test_every_prefix_is_spread_over_every_dimension(counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    orders = [spread(counts, seed) for seed in range(5)]
    assert all(len(np.unique(order, axis=0)) == len(order) == np.prod(counts) for order in orders)
    at_random = np.mean([unevenness(rng.permutation(order), counts) for order in orders for _ in range(4)])
    assert np.mean([unevenness(order, counts) for order in orders]) < 0.35 * at_random


def test_a_grid_too_large_to_list_is_drawn_from_all_over() -> None:
    order = spread([5] * 7, 0)
    assert len(np.unique(order, axis=0)) == len(order) > 9000
    assert all(np.bincount(column[:500]).min() > 90 for column in order.T)


def test_the_recipe_is_not_run_again_as_a_point_of_the_grid(synthetic: Any) -> None:
    recipe = {**synthetic.RECIPE, "learning_rate": 1e-6, "rollouts": 4}
    of = synthetic.problem(space=Space(DIMENSIONS), recipe=recipe, max_trials=None)
    assert len(synthetic.simulate(of, "grid").proposals) == 12 * 3 * 3


def test_a_lost_point_is_asked_again(synthetic: Any) -> None:
    of = synthetic.problem(max_trials=None)
    searcher = make_searcher("grid", of)
    searcher.tell(synthetic.observe(0, searcher.ask(0, [])))
    point = searcher.ask(1, [])
    searcher.tell(synthetic.observe(1, point, None, Cause.PREEMPTED))
    assert searcher.ask(2, []) == point
    assert (point.why["point"], point.why["points"]) == (0, 4 * 2 * 4 * 4)
