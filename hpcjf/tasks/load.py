"""The rows of a study, from its task section."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hpcjf.errors import TaskError
from hpcjf.study import TaskName, TaskSection
from hpcjf.tasks import arithmetic, race
from hpcjf.tasks.base import Row, TaskData
from hpcjf.tasks.files import find_file, read_rows
from hpcjf.tasks.prepare import prepare_answers
from hpcjf.tasks.split import shares, take_grouped, take_random, validation_candidates


@dataclass(frozen=True, slots=True)
class _Part:
    """One task: ``pool`` holds the rows that validation is cut from, None where these are the training rows."""

    train: list[Row]
    pool: list[Row] | None
    test: list[Row]
    notes: list[str]


def load_task(settings: TaskSection) -> TaskData:
    """Reads, cleans and splits the rows of one task or of several mixed ones, in the order of their names.

    The same settings and files give the same rows in the same order. Raises TaskError on rows it cannot use.
    """
    if len(set(settings.names)) < len(settings.names):
        raise TaskError("a task is named twice", where="task.names", fix="name each task once")
    parts = [_part(name, settings) for name in settings.names]
    notes = [note for part in parts for note in part.notes]
    tested = {row.key for part in parts for row in part.test}
    validation = _cut_validation(parts, tested, settings)
    moved = {row.key for row in validation}
    taboo = moved if settings.split == "paper" else moved | tested
    train = [row for part in parts for row in part.train if row.key not in taboo]
    gone = [row.key for part in parts for row in part.train if row.key in taboo]
    if copies := len(gone) - len(moved.intersection(gone)):
        notes.append(f"{copies} training rows left out: copies of validation or test prompts")
    return TaskData.of(train, validation, _cap_test(parts, settings.test_rows, notes), notes)


def _part(name: TaskName, settings: TaskSection) -> _Part:
    if name == "arithmetic" or name == "subtraction":
        train, pool, test = arithmetic.split_rows(name)
        return _Part(list(train), list(pool), list(test), [])
    return _read_part(name, settings)


def _read_part(name: str, settings: TaskSection) -> _Part:
    if settings.path is None:
        raise TaskError(f"task {name} needs data", where="task.path", fix="set it to the file or folder with the rows")
    path = find_file(Path(settings.path).expanduser(), name, alone=len(settings.names) == 1)
    raws = read_rows(path)
    is_race = name.startswith("race_")
    prepared = race.prepare(raws, name, mask=settings.leaks == "mask") if is_race else prepare_answers(raws, name)
    wanted = len(raws) // 10
    train, test = (take_random if settings.split == "paper" else take_grouped)(prepared, wanted)
    if not train or not test:
        raise TaskError(
            f"too few rows for task {name}: {len(prepared.rows)} usable of {len(raws)}",
            where=str(path),
            fix="give at least 10 rows with different prompts, of which a tenth is kept for the test",
        )
    return _Part(train, None, test, [*prepared.notes, _split_note(name, len(raws), train, test, wanted)])


def _split_note(name: str, rows: int, train: Sequence[Row], test: Sequence[Row], wanted: int) -> str:
    keys = {row.key for row in test}
    shared = sum(row.key in keys for row in train)
    prompts = len(keys | {row.key for row in train})
    text = (
        f"{name}: {rows} rows read, {prompts} different prompts kept, {len(train)} rows to train on, {len(test)} test"
    )
    short = f" (a tenth would be {wanted})" if len(test) != wanted else ""
    return f"{text}{short}, {shared} training rows equal a test prompt" if shared else text + short


def _cut_validation(parts: list[_Part], tested: Set[str], settings: TaskSection) -> list[Row]:
    """Leaves at least one prompt of each task to train on."""
    candidates = [validation_candidates(part.train if part.pool is None else part.pool, tested) for part in parts]
    sizes = [len(rows) - (part.pool is None) for rows, part in zip(candidates, parts, strict=True)]
    most = sum(max(size, 0) for size in sizes)
    if settings.validation_rows > most:
        raise TaskError(
            f"too few rows: {settings.validation_rows} validation prompts are asked for, {most} can be spared",
            where=settings.path or "task.names",
            fix=f"set task.validation_rows to {most} or less" if most else "give more rows",
        )
    counts = shares(settings.validation_rows, [max(size, 0) for size in sizes])
    return [row for rows, count in zip(candidates, counts, strict=True) for row in rows[:count]]


def _cap_test(parts: list[_Part], cap: int | None, notes: list[str]) -> list[Row]:
    sizes = [len(part.test) for part in parts]
    if cap is None or cap >= sum(sizes):
        return [row for part in parts for row in part.test]
    notes.append(f"{cap} of {sum(sizes)} test rows used (task.test_rows)")
    return [row for part, count in zip(parts, shares(cap, sizes), strict=True) for row in part.test[:count]]
