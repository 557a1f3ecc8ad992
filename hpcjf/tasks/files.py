"""Reads rows of {instruction, input, output} from JSON or JSONL, and finds the public files in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hpcjf.errors import TaskError

PUBLIC_FILES = {
    "race_c": "task2_c_c++.json",
    "race_fortran": "task2_fortran.json",
    "mlperf": "task1_ml_perf.json",
    "plp": "task1_plp.json",
}
"""Names under which the HPC-GPT data is published."""
_SHAPE = 'write each row as {"instruction": ..., "input": ..., "output": ...}'


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in the file; ``number`` counts rows (JSON) or lines (JSONL) from 1."""

    prompt: str
    answer: str
    number: int


def find_file(path: Path, task: str, *, alone: bool) -> Path:
    """The file with the rows of ``task``: ``path`` itself if the study has this task ``alone``, or one in the folder.

    Raises TaskError where there is none.
    """
    if path.is_dir():
        names = (PUBLIC_FILES[task], f"{task}.json", f"{task}.jsonl")
        for name in names:
            if (path / name).is_file():
                return path / name
        raise TaskError(f"no rows for task {task}", where=str(path), fix=f"add one of {', '.join(names)}")
    if not path.exists():
        raise TaskError("no such file or folder", where=str(path), fix="set task.path to the rows of the task")
    if not alone:
        raise TaskError(
            "one file cannot serve several tasks", where=str(path), fix="set task.path to a folder with one file each"
        )
    return path


def read_rows(path: Path) -> list[RawRow]:
    """All rows of a JSON list or of a JSONL file. Raises TaskError with the row that cannot be used."""
    text = _read(path)
    if not text.strip():
        raise TaskError("the file is empty", where=str(path), fix=_SHAPE)
    values = _json_list(text, path) if text.lstrip().startswith("[") else _json_lines(text, path)
    if not values:
        raise TaskError("the file has no rows", where=str(path), fix=_SHAPE)
    return [_row(value, number, path) for number, value in values]


def read_lines(path: Path) -> list[tuple[int, object]]:
    """Values of a JSONL file with their lines' numbers, from 1. Raises TaskError."""
    return _json_lines(_read(path), path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(
            f"not UTF-8 text (byte {error.start})", where=str(path), fix="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise TaskError(f"cannot be read: {error.strerror}", where=str(path), fix="mend its permissions") from error


def _json_list(text: str, path: Path) -> list[tuple[int, object]]:
    try:
        return list(enumerate(json.loads(text), start=1))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"{path}: line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise TaskError(f"not valid JSON: {error}", where=where, fix="mend the JSON list") from error


def _json_lines(text: str, path: Path) -> list[tuple[int, object]]:
    values = []
    # Not splitlines(): it also breaks at characters that may stand inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append((number, json.loads(line)))
        except (json.JSONDecodeError, RecursionError) as error:
            raise TaskError(
                f"not valid JSON: {error}", where=f"{path}: row {number}", fix="write a JSON list, or one row a line"
            ) from error
    return values


def _row(value: object, number: int, path: Path) -> RawRow:
    where = f"{path}: row {number}"
    if not isinstance(value, dict):
        raise TaskError("the row is not an object", where=where, fix=_SHAPE)
    missing = [key for key in ("instruction", "output") if key not in value]
    if missing:
        raise TaskError(f"the row lacks {' and '.join(missing)}", where=where, fix=_SHAPE)
    parts = [_text(value.get(key, ""), key, where) for key in ("instruction", "input", "output")]
    prompt = "\n".join(part for part in parts[:2] if part.strip())
    if not prompt:
        raise TaskError("instruction and input are both empty", where=where, fix=_SHAPE)
    return RawRow(prompt, parts[2], number)


def _text(value: object, key: str, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TaskError(f"{key} is not text", where=where, fix=_SHAPE)
