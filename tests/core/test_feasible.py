from __future__ import annotations

import numpy as np
import pytest

from hpcjf.core.feasible import shares_left
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange

SPACE: dict[str, Dimension] = {
    "rollouts": IntegerRange(type="integer", low=1, high=10),
    "rate": RealRange(low=1e-6, high=1e-2, log=True),
    "clip": RealRange(low=0.0, high=1.0),
    "kind": Categorical(type="categorical", choices=("a", "b")),
    "depth": IntegerRange(type="integer", low=1, high=100, log=True, when={"kind": ("b",)}),
}


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("rollouts <= 3", 0.3),
        ("rollouts == 1", 0.1),
        ("rollouts == 10", 0.1),
        ("rate < 1e-5", 0.25),
        ("clip * batch < 4", 0.5),
        ("depth <= 10", 0.75),
        ("depth == 100 or depth == 1", 0.545),
        ("clip > 1", 0.0),
    ],
)
def test_the_share_is_that_of_the_priors(text: str, share: float) -> None:
    assert shares_left(SPACE, [text], {"batch": 8}) == pytest.approx([share], abs=0.02)


def test_each_constraint_takes_from_what_is_left() -> None:
    shares = shares_left(SPACE, ["clip < 0.5", "rollouts < 6", "clip > 0.5"], {})
    assert shares == pytest.approx([0.5, 0.25, 0.0], abs=0.02)
    assert shares[2] == 0.0


def test_it_is_the_same_whatever_was_drawn_before() -> None:
    first = shares_left(SPACE, ["clip < 0.5"], {})
    np.random.seed(3)
    assert shares_left(SPACE, ["clip < 0.5"], {}) == first


def test_without_constraints_there_is_nothing_to_say() -> None:
    assert shares_left(SPACE, [], {}) == []
