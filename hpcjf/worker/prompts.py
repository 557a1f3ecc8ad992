"""Prompts that are too long for the study or the model are left out, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcjf.errors import TaskError
from hpcjf.study import Study
from hpcjf.tasks import Row, TaskData, render


def fitting(data: TaskData, tokenizer: Any, study: Study, context: int | None) -> TaskData:
    """Rows whose prompt has at most ``task.max_prompt_tokens`` and leaves room for ``algorithm.max_new_tokens`` in the
    model's ``context`` tokens (None: no limit is known). Raises TaskError where a part has none left."""
    limit, why, fix = study.task.max_prompt_tokens, "", "raise it"
    room = limit if context is None else context - study.algorithm.max_new_tokens
    if room < limit:
        limit, why = room, f" (the model's context of {context} less algorithm.max_new_tokens)"
        fix = "lower algorithm.max_new_tokens"
    template = study.task.template
    frame = len(render(Row.of("", (), "arithmetic"), tokenizer, template))

    def fits(row: Row) -> bool:
        # a token is at least one byte: most prompts are short enough without being tokenised
        return len(row.prompt.encode()) + frame <= limit or len(render(row, tokenizer, template)) <= limit

    def kept(part: str, rows: Sequence[Row]) -> tuple[Row, ...]:
        left = tuple(row for row in rows if fits(row))
        if not left:
            what = f"no {part} row has a prompt of at most {limit} tokens{why}"
            raise TaskError(what, where="task.max_prompt_tokens", fix=fix)
        return left

    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    short = {part: kept(part, rows) for part, rows in parts.items()}
    lost = ", ".join(f"{len(rows) - len(short[part])} {part}" for part, rows in parts.items())
    notes = [*data.notes, f"left out for more than {limit} prompt tokens{why}: {lost} rows"]
    if template == "auto" and not getattr(tokenizer, "chat_template", None):
        notes.append("the tokenizer has no chat template: prompts are plain text")
    return TaskData.of(short["train"], short["validation"], short["test"], notes)
