"""Questions with several answers to choose from, whose likelihoods decide: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hpcjf.errors import TaskError
from hpcjf.tasks.files import read_lines

_SHAPE = 'write each line as {"question": "...", "choices": ["...", "..."], "answer": 0}'


@dataclass(frozen=True, slots=True)
class Question:
    """``answer`` is the place of the right one among ``choices``, from 0."""

    text: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: Path) -> list[Question]:
    """Raises TaskError with the line that cannot be used."""
    found = [_question(value, f"{path}: row {number}") for number, value in read_lines(path)]
    if not found:
        raise TaskError("the file has no questions", where=str(path), fix=_SHAPE)
    return found


def _question(value: object, where: str) -> Question:
    match value:
        case {"question": str(text), "choices": [*choices], "answer": int(answer)} if (
            text and len(choices) > 1 and all(isinstance(choice, str) and choice for choice in choices)
        ):
            if not 0 <= answer < len(choices) or isinstance(answer, bool):
                what = f"answer is {json.dumps(answer)}, not one of 0 to {len(choices) - 1}"
                raise TaskError(what, where=where, fix="give the place of the right choice, from 0")
            return Question(text, tuple(choices), answer)
    raise TaskError("this is no question with two choices or more", where=where, fix=_SHAPE)
