from __future__ import annotations

import itertools
import math

import pytest

from hpcjf.core.conditions import Conditions
from hpcjf.errors import StudyError
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config


def choice(*choices: bool | int | float | str, **when: object) -> Dimension:
    return Categorical.model_validate({"type": "categorical", "choices": choices, "when": when or None})


def integer(low: int, high: int, **when: object) -> Dimension:
    return IntegerRange.model_validate({"type": "integer", "low": low, "high": high, "when": when or None})


def real(**when: object) -> Dimension:
    return RealRange.model_validate({"low": 0, "high": 1, "when": when or None})


CHAIN = {
    "leaf": integer(1, 4, inner=[2, 3]),
    "inner": integer(1, 9, kind="b", flag=True),
    "kind": choice("a", "b", "c"),
    "flag": choice(True, False),
    "free": integer(1, 2),
}


@pytest.mark.parametrize(
    ("config", "active"),
    [
        ({"kind": "b", "flag": True, "inner": 3, "leaf": 1, "free": 1}, {"kind", "flag", "inner", "leaf", "free"}),
        ({"kind": "b", "flag": True, "inner": 4, "leaf": 1, "free": 1}, {"kind", "flag", "inner", "free"}),
        ({"kind": "a", "flag": True, "inner": 3, "leaf": 1, "free": 1}, {"kind", "flag", "free"}),
        ({"kind": "b", "flag": 1, "inner": 3, "leaf": 1, "free": 1}, {"kind", "flag", "free"}),
        ({"kind": "b", "flag": True}, {"kind", "flag", "inner", "free"}),
        ({}, {"kind", "flag", "free"}),
    ],
)
def test_a_dimension_needs_all_its_names_and_they_theirs(config: Config, active: set[str]) -> None:
    conditions = Conditions(CHAIN)
    assert set(conditions.active(config)) == active
    kept = conditions.prune({**config, "extra": 1})
    assert kept == {name: value for name, value in config.items() if name in active} | {"extra": 1}


def test_parents_come_before_their_children() -> None:
    order = Conditions(CHAIN).active({"kind": "b", "flag": True, "inner": 3})
    assert order.index("leaf") > order.index("inner") > max(order.index("kind"), order.index("flag"))


def test_the_size_is_the_number_of_distinct_configurations() -> None:
    conditions = Conditions(CHAIN)
    values = {"kind": "abc", "flag": (True, False), "inner": range(1, 10), "leaf": range(1, 5), "free": (1, 2)}
    everything = (dict(zip(values, row, strict=True)) for row in itertools.product(*values.values()))
    assert conditions.size == len({tuple(sorted(conditions.prune(c).items(), key=str)) for c in everything})


def test_a_real_range_counts_where_it_can_be_active() -> None:
    assert Conditions({"a": choice(1, 2), "x": real(a=1)}).size == math.inf
    assert Conditions({"a": choice(1, 2), "x": real(mode="on")}, {"mode": "off"}).size == 2


def test_fixed_settings_decide_once_and_for_all() -> None:
    space = {"x": real(mode=["on", "auto"])}
    assert Conditions(space, {"mode": "auto"}).active({}) == ("x",)
    assert Conditions(space, {"mode": "off"}).active({}) == ()
    assert Conditions(space, {"mode": "off", "x": 0.5}).active({"x": 0.5, "mode": "on"}) == ()


def test_what_can_never_be_active() -> None:
    space = {"a": choice(1, 2), "b": choice(1, 2, a=1), "c": real(a=2, b=1), "d": real(b=2), "e": real(mode="on")}
    assert Conditions(space, {"mode": "off"}).possible == {"a", "b", "d"}


def test_it_is_false_without_a_condition() -> None:
    assert not Conditions({"a": choice(1, 2)})
    assert Conditions(CHAIN)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"x": real(y=1)}, "space.x.when: nothing is called y; known: mode"),
        ({"x": real(a=3), "a": choice(1, 2)}, "space.x.when: space.a never is 3; list values of its own range"),
        ({"x": real(a=[1, "1"]), "a": choice(1, 2)}, "space.x.when: space.a never is '1'"),
        ({"x": real(a=True), "a": choice(1, 2)}, "space.x.when: space.a never is True"),
        ({"x": real(a=5), "a": integer(1, 4)}, "space.x.when: space.a never is 5"),
        ({"x": real(a=2.5), "a": integer(1, 4)}, "space.x.when: space.a never is 2.5"),
        ({"x": real(a=0.5), "a": real()}, "space.x.when: a is a real range, which meets no single value; name a cat"),
        ({"x": choice(1, 2, x=1)}, "space.x.when: x needs x, in a circle; take one of them out"),
        ({"x": choice(1, 2, y=1), "y": choice(1, 2, x=1)}, "in a circle"),
    ],
)
def test_faults_are_one_line(space: dict[str, Dimension], said: str) -> None:
    with pytest.raises(StudyError) as caught:
        Conditions(space, {"mode": "on"})
    assert said in str(caught.value)
    assert caught.value.fix
