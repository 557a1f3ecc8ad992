from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.core.constraints import LONGEST, Constraint
from hpcjf.errors import StudyError

NAMES = ("a", "b", "rollouts", "prompts_per_step")


def holds(text: str, **values: float) -> bool:
    return Constraint(text, NAMES).holds({"a": 0.0, "b": 0.0} | values)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("rollouts * prompts_per_step <= 128", {"rollouts": 8, "prompts_per_step": 16}, True),
        ("rollouts * prompts_per_step <= 128", {"rollouts": 9, "prompts_per_step": 16}, False),
        ("a < 0.3", {"a": 0.3}, False),
        ("1 < a <= b", {"a": 2, "b": 2}, True),
        ("1 < a <= b", {"a": 1, "b": 2}, False),
        ("a == 1 or b != 1", {"a": 0, "b": 2}, True),
        ("a == 1 or b == 1 and a > 5", {"a": 0, "b": 1}, False),
        ("(a + b) * 2 ** 3 - 1 >= -a / 4", {"a": 1, "b": 2}, True),
        ("-a ** 2 < 0", {"a": 3}, True),
        ("2 ** -a == 0.25", {"a": 2}, True),
        ("a < 1e-6", {"a": 1e-7}, True),
    ],
)
def test_comparisons_mean_what_they_say(text: str, values: dict[str, float], expected: bool) -> None:
    assert holds(text, **values) is expected


@given(a=st.integers(-5, 5), b=st.integers(-5, 5), c=st.integers(1, 4))
def test_arithmetic_is_that_of_python(a: int, b: int, c: int) -> None:
    text = f"(a - {c}) * b / {c} + a ** {c} < b * {c}"
    assert holds(text, a=a, b=b) is ((a - c) * b / c + a**c < b * c)


@pytest.mark.parametrize(
    "text", ["1 / a < 5", "a ** 0.5 < 5", "10 ** 999 > a", "1e308 * 10 != a", "1e999 != a", "0 ** a > 0"]
)
def test_what_is_no_finite_number_meets_nothing(text: str) -> None:
    assert not holds(text, a=-1.0 if "0.5" in text or "0 **" in text else 0.0)
    assert holds(f"{text} or b == 0")


def test_a_name_without_a_value_constrains_nothing() -> None:
    assert Constraint("rollouts < 3", NAMES).holds({"a": 1})


def test_names_are_told() -> None:
    assert Constraint("b * a < b + 2", NAMES).names == ("b", "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' cannot be read (invalid syntax); write e.g. rollouts * prompts_per_step <= 128"),
        ("a <", "'a <' cannot be read (invalid syntax)"),
        ("a\0 < 1", "cannot be read"),
        ("a < 1or b < 1", "cannot be read (invalid decimal literal)"),
        ("a", "'a' compares no numbers"),
        ("a < 1 and b", "'b' compares no numbers"),
        ("not a < 1", "'not a < 1' compares no numbers"),
        ("a in b", "'a in b' compares no numbers"),
        ("a is b", "'a is b' compares no numbers"),
        ("(a < 1) == (b < 2)", "'a < 1' is no number"),
        ("a < 'x'", "\"'x'\" is no number"),
        ("a < True", "'True' is no number"),
        ("a // 2 < 1", "'a // 2' is no number"),
        ("a.real < 1", "'a.real' is no number"),
        ("a[0] < 1", "'a[0]' is no number"),
        ("abs(a) < 1", "'abs(a)' is no number"),
        ("__import__('os').system('true') < 1", "is no number"),
        ("(lambda: a)() < 1", "is no number"),
        ("rolouts < 3", "'rolouts < 3': no number is called rolouts; known: a, b, rollouts, prompts_per_step"),
        ("-" * LONGEST + "a < 1", f"longer than {LONGEST} characters; write several constraints"),
        ("9" * 150 + "**" + "9" * 40 + "", "compares no numbers"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        Constraint(text, NAMES)
    assert said in str(caught.value)
    assert str(caught.value).startswith("search.constraints: ")
    assert caught.value.fix
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="ab<>=()+-*/.1e ord", max_size=40))
def test_any_text_is_a_constraint_or_a_study_error(text: str) -> None:
    try:
        constraint = Constraint(text, NAMES)
    except StudyError:
        return
    assert constraint.holds({"a": 0.5, "b": math.pi}) in (True, False)


def test_the_deepest_text_is_no_recursion() -> None:
    assert holds("-" * (LONGEST - 6) + "a == 0")
    assert holds("(" * 90 + "a" + ")" * 90 + " == 0")
