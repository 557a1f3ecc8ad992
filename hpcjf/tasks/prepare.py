"""From the rows of a file to the rows of a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcjf.tasks.base import Row
from hpcjf.tasks.files import RawRow


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows in file order, the keys of prompts that contradict themselves, and notes on what was changed."""

    rows: Sequence[Row]
    contradictory: frozenset[str]
    notes: Sequence[str]


def prepare_answers(raws: Sequence[RawRow], task: str) -> Prepared:
    """Rows with free answers. Where a prompt has several, each of its rows accepts all, its own one first."""
    answered = [raw for raw in raws if raw.answer.strip()]
    single = [Row.of(raw.prompt.strip(), (raw.answer.strip(),), task) for raw in answered]
    answers = answers_by_key(single)
    rows = [Row(row.prompt, tuple(dict.fromkeys(row.references + answers[row.key])), task, row.key) for row in single]
    several = sum(len(texts) > 1 for texts in answers.values())
    empty = [raw.number for raw in raws if not raw.answer.strip()]
    notes = [
        (len(empty), f"rows without an answer left out ({listed(empty)})"),
        (several, "prompts have several answers: any of them is accepted"),
    ]
    return Prepared(rows, frozenset(), [f"{task}: {count} {what}" for count, what in notes if count])


def answers_by_key(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """The different references of each prompt, in order of appearance."""
    answers: dict[str, dict[str, None]] = {}
    for row in rows:
        answers.setdefault(row.key, {}).update(dict.fromkeys(row.references))
    return {key: tuple(texts) for key, texts in answers.items()}


def listed(numbers: Sequence[int]) -> str:
    """``row 4, 17, 23 and 9 more``."""
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return f"row {', '.join(map(str, numbers[:3]))}{more}"
