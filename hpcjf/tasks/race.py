"""Data races in OpenMP code: a yes/no question on a C or Fortran snippet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcjf.tasks.base import Row
from hpcjf.tasks.files import RawRow
from hpcjf.tasks.masking import leaked_label, mask_names
from hpcjf.tasks.prepare import Prepared, answers_by_key, listed

_LABEL = re.compile(r"\s*(yes|no)\b", re.I | re.A)
_RESPONSE = re.compile(r"(yes|no)\.?", re.I | re.A)
_WORD = re.compile(r"\b(yes|no)\b", re.I | re.A)
_FENCE = re.compile(r"```(?:(?:c\+\+|cpp|c|fortran|f90)(?=\s))?[ \t]*\n?", re.I)
_QUOTES = re.compile(r"(?<=snippet:)\s*(?:\"\"\"|\'\'\')|(?:\"\"\"|\'\'\')\s*(?=, help me detect)")


def reward(row: Row, response: str) -> float:
    """1 if the response is the right word alone, in any case, with or without a full stop."""
    found = _RESPONSE.fullmatch(response.strip())
    return float(found is not None and found[1].lower() in row.references)


def extract_yes_no(text: str) -> str | None:
    """The first yes or no that stands as a word of its own; for metrics, never for the reward."""
    found = _WORD.search(text)
    return found[1].lower() if found else None


def prepare(raws: Sequence[RawRow], task: str, *, mask: bool) -> Prepared:
    """Rows with clean labels and prompts; prompts with both labels are marked as contradictory."""
    labelled = [(raw, found[1].lower()) for raw in raws if (found := _LABEL.match(raw.answer))]
    rows = [Row.of(_prompt(raw.prompt, task, mask=mask), (label,), task) for raw, label in labelled]
    contradictory = frozenset(key for key, labels in answers_by_key(rows).items() if len(labels) > 1)
    return Prepared(rows, contradictory, _notes(raws, labelled, rows, contradictory, task, mask=mask))


def _prompt(prompt: str, task: str, *, mask: bool) -> str:
    plain = plain_code(prompt)
    return mask_names(plain, fortran=task == "race_fortran") if mask else plain


def plain_code(prompt: str) -> str:
    """The prompt without code fences, so that fenced and bare snippets look alike."""
    text = re.sub(r"(code snippet:)\s*", r"\1\n", _unfenced(prompt), count=1)
    return re.sub(r"\s*, help me detect", "\n, help me detect", text)


def _unfenced(prompt: str) -> str:
    return _QUOTES.sub("", _FENCE.sub("", prompt))


def _notes(
    raws: Sequence[RawRow],
    labelled: Sequence[tuple[RawRow, str]],
    rows: Sequence[Row],
    contradictory: frozenset[str],
    task: str,
    *,
    mask: bool,
) -> list[str]:
    kept = {raw.number for raw, _ in labelled}
    unlabelled = [raw.number for raw in raws if raw.number not in kept]
    wordy = [raw.number for raw, label in labelled if raw.answer.strip().lower() != label]
    fenced = sum(_unfenced(raw.prompt) != raw.prompt for raw in raws)
    leaks = [(leaked_label(raw.prompt), label) for raw, label in labelled]
    named = sum(leak is not None for leak, _ in leaks)
    told = sum(leak == label for leak, label in leaks)
    clashing = sum(row.key in contradictory for row in rows)
    notes = [
        (len(unlabelled), f"rows without a yes/no label left out ({listed(unlabelled)})"),
        (len(wordy), f"labels with more text cut to their first word ({listed(wordy)})"),
        (fenced, "prompts freed of code fences"),
        (named, f"prompts name a label, {told} the right one: names {'masked' if mask else 'kept (task.leaks: keep)'}"),
        (len(contradictory), f"prompts carry both labels ({clashing} rows): never trained on or used for validation"),
    ]
    return [f"{task}: {count} {what}" for count, what in notes if count]
