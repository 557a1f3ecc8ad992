from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hpcjf.errors import TaskError
from hpcjf.tasks.choices import Question, read_questions

GOOD = {"question": "2+2=", "choices": ["3", "4"], "answer": 1}


def test_questions_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + json.dumps(GOOD | {"answer": 0, "id": 7}) + "\n")
    assert read_questions(path) == [Question("2+2=", ("3", "4"), 1), Question("2+2=", ("3", "4"), 0)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answer": 2}, "answer is 2, not one of 0 to 1"),
        ({"answer": -1}, "answer is -1"),
        ({"answer": "B"}, "this is no question"),
        ({"answer": True}, "answer is true"),
        ({"choices": ["4"]}, "this is no question"),
        ({"choices": ["4", ""]}, "this is no question"),
        ({"question": ""}, "this is no question"),
        ({"question": None}, "this is no question"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(GOOD | change)}\n")
    with pytest.raises(TaskError, match=said) as caught:
        read_questions(path)
    assert f"{path}: row 2" in str(caught.value)


def test_files_that_hold_none(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    with pytest.raises(TaskError, match="cannot be read"):
        read_questions(path)
    path.write_text("\n")
    with pytest.raises(TaskError, match="no questions"):
        read_questions(path)
    path.write_text("{\n")
    with pytest.raises(TaskError, match="not valid JSON"):
        read_questions(path)


@pytest.mark.data
def test_questions_made_from_public_rows(data_dir: Path, tmp_path: Path) -> None:
    """Fields with quotes, commas and line breaks come through."""
    path, written = tmp_path / "mmlu.jsonl", []
    for source in sorted((data_dir / "mmlu" / "test").glob("*.csv")):
        with source.open(newline="", encoding="utf-8") as lines:
            for text, *choices, letter in csv.reader(lines):
                written.append(Question(f"{text}\nAnswer:", tuple(f" {c}" for c in choices), "ABCD".index(letter)))
    shapes = [{"question": one.text, "choices": one.choices, "answer": one.answer} for one in written]
    path.write_text("".join(f"{json.dumps(shape)}\n" for shape in shapes))
    assert len(written) > 10_000
    assert read_questions(path) == written
