"""Constraints of a search space: comparisons of numbers such as ``rollouts * prompts_per_step <= 128``.

A text becomes functions once and is never handed to ``eval``: only names, numbers, ``+ - * / **``, brackets,
comparisons, ``and`` and ``or`` have a meaning.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Collection, Mapping

from hpcjf.errors import StudyError
from hpcjf.types import Scalar

Values = Mapping[str, Scalar]

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
LONGEST = 200
"""Characters of a constraint: nested brackets stay far from the limit on recursion."""


class Constraint:
    """A condition that every configuration must meet. ``names`` are those that it reads, all of them of ``numbers``.

    Raises StudyError for a text that is none.
    """

    def __init__(self, text: str, numbers: Collection[str]) -> None:
        self.text = text
        tree = _parsed(text)
        self._holds = _truth(tree.body)
        self.names = tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))
        unknown = [name for name in self.names if name not in numbers]
        if unknown:
            raise _fault(f"{text!r}: no number is called {unknown[0]}", f"known: {', '.join(numbers)}")

    def holds(self, values: Values) -> bool:
        """Whether ``values`` meet it; a comparison of what is no finite number (1 / 0, an overflow) is false.

        True where a name has no value, or None: an inactive dimension constrains nothing.
        """
        return any(values.get(name) is None for name in self.names) or self._holds(values)


def _fault(what: str, fix: str = "write e.g. rollouts * prompts_per_step <= 128") -> StudyError:
    return StudyError(what, where="search.constraints", fix=fix)


def _parsed(text: str) -> ast.Expression:
    if len(text) > LONGEST:
        raise _fault(f"longer than {LONGEST} characters", "write several constraints")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # 1or 2
            return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise _fault(f"{text!r} cannot be read ({said})") from error


def _truth(node: ast.expr) -> Callable[[Values], bool]:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            every = [_truth(part) for part in parts]
            return lambda values: all(part(values) for part in every)
        case ast.BoolOp(values=parts):
            some = [_truth(part) for part in parts]
            return lambda values: any(part(values) for part in some)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            terms = [_number(term) for term in (left, *others)]
            tests = [_COMPARISONS[type(op)] for op in ops]
            return lambda values: _compared(terms, tests, values)
    raise _fault(f"{ast.unparse(node)!r} compares no numbers")


def _compared(
    terms: list[Callable[[Values], float]], tests: list[Callable[[float, float], bool]], values: Values
) -> bool:
    try:
        numbers = [term(values) for term in terms]
    except (ArithmeticError, ValueError):
        return False
    pairs = zip(tests, numbers, numbers[1:], strict=False)
    return all(map(math.isfinite, numbers)) and all(test(left, right) for test, left, right in pairs)


def _number(node: ast.expr) -> Callable[[Values], float]:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            number = float(value)
            return lambda values: number
        case ast.Name(id=name):
            return lambda values: float(values[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _number(operand)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            first, second, apply = _number(left), _number(right), _ARITHMETIC[type(op)]
            return lambda values: apply(first(values), second(values))
    raise _fault(f"{ast.unparse(node)!r} is no number")
