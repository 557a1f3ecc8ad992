import json

import pytest

from hpcjf.errors import TaskError
from hpcjf.tasks.files import find_file, read_rows

GOOD = {"instruction": "ask", "input": "", "output": "tell"}


def test_json_and_jsonl_read_the_same(tmp_path):
    rows = [GOOD, {"instruction": "ask", "input": "more\u2028here", "output": 896}, {"instruction": "x", "output": ""}]
    whole, lines = tmp_path / "a.json", tmp_path / "b.jsonl"
    whole.write_text("\ufeff" + json.dumps(rows), encoding="utf-8")
    lines.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    read = [[(row.prompt, row.answer) for row in read_rows(path)] for path in (whole, lines)]
    assert read[0] == read[1] == [("ask", "tell"), ("ask\nmore\u2028here", "896"), ("x", "")]
    assert [row.number for row in read_rows(whole)] == [1, 2, 3]
    assert [row.number for row in read_rows(lines)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        (" \n\t\n", ["empty"]),
        ("[]", ["no rows"]),
        ("hello", ["not valid JSON", "row 1"]),
        (json.dumps(GOOD) + "\n{'instruction': 1}\n", ["not valid JSON", "row 2"]),
        ('[\n{"instruction": "a",\n', ["not valid JSON", "line 3"]),
        ("[" * 100_000, ["not valid JSON"]),
        (json.dumps([GOOD, {"output": "tell"}]), ["row 2", "lacks instruction"]),
        (json.dumps([GOOD, GOOD, {"prompt": "ask"}]), ["row 3", "lacks instruction and output"]),
        (json.dumps([GOOD, "ask"]), ["row 2", "not an object"]),
        (json.dumps(GOOD | {"output": None}), ["row 1", "output is not text"]),
        (json.dumps(GOOD | {"output": True}), ["row 1", "output is not text"]),
        (json.dumps(GOOD | {"input": ["x"]}), ["row 1", "input is not text"]),
        (json.dumps(GOOD | {"instruction": "  "}), ["row 1", "both empty"]),
    ],
)
def test_bad_files_are_named_with_row_and_fix(tmp_path, text, words):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(TaskError) as caught:
        read_rows(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)
    assert caught.value.fix


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes('[{"instruction": "é", "output": "x"}]'.encode("latin-1"))
    with pytest.raises(TaskError, match="not UTF-8"):
        read_rows(path)


def test_unreadable_path_is_a_task_error(tmp_path):
    with pytest.raises(TaskError, match="cannot be read"):
        read_rows(tmp_path)


def test_a_folder_gives_the_public_name_first_then_the_task_name(tmp_path):
    with pytest.raises(TaskError, match=r"no rows for task race_c.*task2_c_c\+\+\.json, race_c\.json"):
        find_file(tmp_path, "race_c", alone=True)
    (tmp_path / "race_c.jsonl").touch()
    assert find_file(tmp_path, "race_c", alone=True).name == "race_c.jsonl"
    (tmp_path / "task2_c_c++.json").touch()
    assert find_file(tmp_path, "race_c", alone=False).name == "task2_c_c++.json"


def test_a_file_serves_one_task(tmp_path):
    path = tmp_path / "mine.json"
    with pytest.raises(TaskError, match="no such file or folder"):
        find_file(path, "plp", alone=True)
    path.touch()
    assert find_file(path, "plp", alone=True) == path
    with pytest.raises(TaskError, match="one file cannot serve several tasks"):
        find_file(path, "plp", alone=False)
