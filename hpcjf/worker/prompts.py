"""Prompts that are too long for the study are left out, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcjf.errors import TaskError
from hpcjf.tasks import Row, TaskData, render


def fitting(data: TaskData, tokenizer: Any, limit: int) -> TaskData:
    """Rows whose prompt has at most ``limit`` tokens. Raises TaskError where a part has none left."""
    frame = len(render(Row.of("", (), "arithmetic"), tokenizer))

    def fits(row: Row) -> bool:
        # a token is at least one byte: most prompts are short enough without being tokenised
        return len(row.prompt.encode()) + frame <= limit or len(render(row, tokenizer)) <= limit

    def kept(part: str, rows: Sequence[Row]) -> tuple[Row, ...]:
        left = tuple(row for row in rows if fits(row))
        if not left:
            what = f"no {part} row has a prompt of at most {limit} tokens"
            raise TaskError(what, where="task.max_prompt_tokens", fix="raise it")
        return left

    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    short = {part: kept(part, rows) for part, rows in parts.items()}
    lost = ", ".join(f"{len(rows) - len(short[part])} {part}" for part, rows in parts.items())
    note = f"left out for more than {limit} prompt tokens: {lost} rows"
    return TaskData.of(short["train"], short["validation"], short["test"], [*data.notes, note])
