from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hpcjf.core.searchers.cube import Cube, truncated_normal
from hpcjf.core.space import Space
from hpcjf.study import Categorical, IntegerRange, RealRange


def test_numbers_lie_in_their_log_range_and_categories_are_counted(synthetic: Any) -> None:
    of = synthetic.problem()
    cube = Cube(of)
    assert cube.choices == [0, 2, 0, 0]
    middle = {**of.recipe, "learning_rate": 1e-4, "lr_scheduler": "cosine", "rollouts": 8}
    low = {**of.recipe, "learning_rate": 1e-9, "kl_coef": 1e-4, "rollouts": 4}
    points = cube.encode([middle, low])
    assert points[0] == pytest.approx([0.5, 1.0, 1 / 3, 0.5])
    assert points[1] == pytest.approx([0.0, 0.0, 0.0, 0.5 / 9])


def test_a_configuration_survives_the_way_there_and_back(synthetic: Any) -> None:
    of = synthetic.problem()
    configs = [of.complete(config) for config in of.space.sample(50, np.random.default_rng(0))]
    cube = Cube(of)
    for config, point in zip(configs, cube.encode(configs), strict=True):
        back = cube.decode(point)
        assert back["lr_scheduler"] == config["lr_scheduler"]
        assert cube.encode([back])[0] == pytest.approx(point, abs=1e-9)
        assert of.space.contains(back)


@pytest.mark.parametrize("log", [False, True])
def test_a_uniform_point_is_a_uniform_integer(log: bool, synthetic: Any) -> None:
    space = Space({"rollouts": IntegerRange(type="integer", low=4, high=7, log=log)})
    cube = Cube(synthetic.problem(space=space))
    found = Counter(cube.decode([(k + 0.5) / 1000])["rollouts"] for k in range(1000))
    assert sorted(found) == [4, 5, 6, 7]
    assert found[4] == pytest.approx(1000 * np.log(4.5 / 3.5) / np.log(7.5 / 3.5) if log else 250, abs=1)


def test_what_has_no_value_in_a_dimension_has_no_place_in_it(synthetic: Any) -> None:
    space = Space(
        {
            "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
            "kl_coef": RealRange(low=1e-4, high=1e-1, log=True, when={"lr_scheduler": ("cosine",)}),
        },
        fixed={"kl_coef": 0.01},
    )
    cube = Cube(synthetic.problem(space=space, recipe={"lr_scheduler": "constant", "kl_coef": 0.01}))
    points = cube.encode([{"lr_scheduler": "constant"}, {"lr_scheduler": "linear", "kl_coef": 0.01}])
    assert np.isnan(points).tolist() == [[False, True], [True, False]]
    assert cube.decode([0.0, 0.3]) == {"lr_scheduler": "constant"}
    assert set(cube.decode([1.0, 0.3])) == {"lr_scheduler", "kl_coef"}


def test_a_point_that_breaks_a_constraint_is_no_configuration(synthetic: Any) -> None:
    space = Space({"rollouts": IntegerRange(type="integer", low=4, high=12)}, constraints=("rollouts <= 8",))
    cube = Cube(synthetic.problem(space=space))
    assert cube.decode([0.1]) is not None
    assert cube.decode([0.9]) is None


def test_draws_follow_the_truncated_normal() -> None:
    drawn = truncated_normal(np.random.default_rng(0), np.full(4000, 0.1), np.full(4000, 0.5))
    expected = stats.truncnorm(-0.1 / 0.5, 0.9 / 0.5, loc=0.1, scale=0.5)
    assert stats.kstest(drawn, expected.cdf).pvalue > 0.01
    assert 0 <= drawn.min() < drawn.max() <= 1
