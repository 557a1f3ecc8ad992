"""Questions on MLPerf results: a number, a name, or a list of both."""

from __future__ import annotations

import math
import re

from hpcjf.tasks.base import Row

_NUMBER = re.compile(r"(?<![\w.,+-])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|[.,]\d)", re.I | re.A)
_SEPARATOR = re.compile(r";|,(?!\d{3}(?!\d))")
_WORD = re.compile(r"\w(?:[\w.+@-]*\w)?")
_FILLER = re.compile("a|an|and|are|as|at|be|by|for|from|if|in|is|it|of|on|or|the|to|used|was|when|which|with")


def reward(row: Row, response: str) -> float:
    """1 for an exact or numeric match, 0.5 for part of a list, 0.2 and 0.1 for keywords; the best reference counts."""
    return max(_against(reference, response) for reference in row.references)


def exact_match(row: Row, response: str) -> bool:
    """Whether the response is one of the references, apart from case, white space and a final full stop."""
    return plain(response) in {plain(reference) for reference in row.references}


def plain(text: str) -> str:
    """Case and white space folded, also around commas; no final full stop."""
    folded = " ".join(text.casefold().split()).removesuffix(".")
    return re.sub(r" ?([,;]) ?", r"\1", folded).strip()


def _against(reference: str, response: str) -> float:
    if plain(reference) == plain(response) or _same_number(reference, response):
        return 1.0
    if _is_part(reference, response):
        return 0.5
    wanted = _keywords(reference)
    share = len(wanted & _keywords(response)) / len(wanted) if wanted else 0.0
    if share > 0.7:
        return 0.2
    return 0.1 if share > 0.4 else 0.0


def _same_number(reference: str, response: str) -> bool:
    """A numeric reference, and a response whose only number it is: naming many numbers earns nothing."""
    wanted = _NUMBER.fullmatch(plain(reference))
    found = _NUMBER.findall(response)
    if wanted is None or len(found) != 1:
        return False
    return math.isclose(_value(wanted[0]), _value(found[0]), rel_tol=1e-9)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _is_part(reference: str, response: str) -> bool:
    """Whether the response names values of the list, and nothing else."""
    wanted, given = _values(reference), _values(response)
    return len(wanted) > 1 and 0 < len(given) <= len(wanted) and set(given) <= set(wanted)


def _values(text: str) -> list[str]:
    return [value for part in _SEPARATOR.split(plain(text)) if (value := part.strip())]


def _keywords(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.casefold()) if not _FILLER.fullmatch(word)}
