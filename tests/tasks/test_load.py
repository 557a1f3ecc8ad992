import json
from pathlib import Path

import pytest

from hpcjf.errors import TaskError
from hpcjf.study import TaskSection
from hpcjf.tasks import load_task
from hpcjf.tasks.base import Row, TaskData, prompt_key

ROWS = Path(__file__).parent / "rows"
ALL = ("race_c", "race_fortran", "mlperf", "plp")


def load(names=ALL, path=ROWS, validation_rows=12, **others):
    path = None if path is None else str(path)
    return load_task(TaskSection(names=names, path=path, validation_rows=validation_rows, **others))


def keys(rows):
    return {row.key for row in rows}


def assert_disjoint(data):
    assert not keys(data.train) & keys(data.validation)
    assert not keys(data.train) & keys(data.test)
    assert not keys(data.validation) & keys(data.test)


def test_keys_fold_white_space_only():
    assert prompt_key(" a\n\tb ") == prompt_key("a b")
    assert prompt_key("a b") != prompt_key("ab")
    assert prompt_key("A") != prompt_key("a")
    assert prompt_key("\ud800")


def test_fingerprint_sees_every_part_of_every_row():
    row = Row.of("p", ("r",), "plp")
    base = TaskData.of([row], [], []).fingerprint
    others = [
        TaskData.of([], [row], []),
        TaskData.of([row, row], [], []),
        TaskData.of([Row.of("p ", ("r",), "plp")], [], []),
        TaskData.of([Row.of("p", ("r", "s"), "plp")], [], []),
        TaskData.of([Row.of("p", ("r",), "mlperf")], [], []),
    ]
    assert len({base, *(data.fingerprint for data in others)}) == 6
    assert TaskData.of([row], [], [], ["a note"]).fingerprint == base


@pytest.mark.parametrize("name", ["arithmetic", "subtraction"])
def test_arithmetic_needs_no_path_and_never_validates_on_training_rows(name):
    data = load((name,), path=None, validation_rows=128, test_rows=50)
    assert {row.task for row in data.train} == {name}
    assert (len(data.train), len(data.validation), len(data.test)) == (8000, 128, 50)
    assert_disjoint(data)
    assert data.train == load((name,), path=None, validation_rows=1000).train
    with pytest.raises(TaskError, match="1000 can be spared"):
        load((name,), path=None, validation_rows=1001)


def test_sums_and_differences_can_be_mixed_without_a_path():
    data = load(("arithmetic", "subtraction"), path=None, validation_rows=100)
    assert len(data.train) == 16_000
    assert sorted(row.task for row in data.validation) == ["arithmetic"] * 50 + ["subtraction"] * 50
    assert_disjoint(data)


@pytest.mark.parametrize("split", ["grouped", "paper"])
@pytest.mark.parametrize("names", [ALL, *[(name,) for name in ALL], ("arithmetic", "plp")])
def test_loading_is_deterministic_and_parts_are_apart(names, split):
    data = load(names, validation_rows=5, split=split)
    assert data == load(names, validation_rows=5, split=split)
    assert len(data.validation) == len(keys(data.validation)) == 5
    assert not keys(data.validation) & keys((*data.train, *data.test))
    if split == "grouped":
        assert_disjoint(data)
    assert {row.task for row in data.train} == set(names)


def test_a_tenth_of_each_file_is_kept_for_the_test():
    for split in ("grouped", "paper"):
        data = load(split=split)
        assert [sum(row.task == name for row in data.test) for name in ALL] == [2, 2, 2, 1]


def test_order_of_tasks_is_the_order_of_names():
    tasks = [row.task for row in load(("plp", "race_c"), validation_rows=4).train]
    assert tasks == sorted(tasks)
    tasks = [row.task for row in load(("race_c", "plp"), validation_rows=4).train]
    assert tasks == sorted(tasks, reverse=True)


def test_validation_and_test_cap_are_spread_over_the_tasks():
    data = load(validation_rows=20, test_rows=4)
    assert {row.task for row in data.validation} == set(ALL)
    assert [sum(row.task == name for row in data.test) for name in ALL] == [1, 1, 1, 1]
    assert "4 of 7 test rows used (task.test_rows)" in data.notes
    assert load(test_rows=100).test == load().test
    assert set(data.test) < set(load(validation_rows=20).test)


def test_contradictory_prompts_are_neither_trained_on_nor_used_for_validation():
    for split in ("grouped", "paper"):
        data = load(("race_c",), validation_rows=10, split=split)
        assert not any("single" in row.prompt for row in (*data.train, *data.validation))
        assert any("1 prompts carry both labels (2 rows)" in note for note in data.notes)


def test_all_answers_of_a_prompt_are_accepted_its_own_first():
    data = load(("mlperf",), validation_rows=1)
    rows = [row for part in (data.train, data.validation, data.test) for row in part if "number of acc" in row.prompt]
    assert len({row.references[0] for row in rows}) == len(rows[0].references) == 4
    assert all(set(row.references) == {"8", "16", "32", "3584"} for row in rows)


def test_keep_leaves_the_names_and_mask_removes_them():
    def text(leaks):
        data = load(("race_fortran",), leaks=leaks)
        return json.dumps([row.prompt for part in (data.train, data.validation, data.test) for row in part])

    assert "DRB9" in text("keep")
    assert "DRB9" not in text("mask")


def test_fingerprint_follows_the_data(tmp_path):
    rows = [json.loads(line) for line in (ROWS / "plp.jsonl").read_text().splitlines()]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(rows))
    before = load(("plp",), path, 3)
    assert before.fingerprint == load(("plp",), ROWS, 3).fingerprint
    rows[0]["output"] += "!"
    path.write_text(json.dumps(rows))
    assert load(("plp",), path, 3).fingerprint != before.fingerprint


def same_prompt_rows(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"instruction": "q", "output": str(i)} for i in range(20)]))
    return path


def test_an_empty_answer_is_left_out_and_said(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"instruction": f"q{i}", "output": "x" if i else " "} for i in range(20)]))
    data = load(("mlperf",), path, 3)
    assert len(data.train) + len(data.validation) + len(data.test) == 19
    assert "mlperf: 1 rows without an answer left out (row 1)" in data.notes


@pytest.mark.parametrize("split", ["grouped", "paper"])
def test_too_few_prompts_are_refused(tmp_path, split):
    with pytest.raises(TaskError, match="too few rows"):
        load(("plp",), same_prompt_rows(tmp_path), 1, split=split)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation_rows": 500}, r"500 validation prompts are asked for, \d+ can be spared"),
        ({"path": "/nowhere/at/all"}, "no such file or folder"),
        ({"path": None}, "task race_c needs data"),
        ({"names": ("plp", "plp")}, "named twice"),
        ({"path": ROWS / "plp.jsonl"}, "one file cannot serve several tasks"),
    ],
)
def test_unusable_settings_are_refused_with_a_way_out(change, message):
    with pytest.raises(TaskError, match=message) as caught:
        load(**change)
    assert caught.value.where
    assert caught.value.fix


def test_the_most_validation_rows_named_in_the_error_can_be_had():
    with pytest.raises(TaskError) as caught:
        load(("plp",), validation_rows=500)
    most = int(caught.value.fix.split()[-3])
    data = load(("plp",), validation_rows=most)
    assert len(data.validation) == most
    assert data.train


def test_nine_rows_are_too_few_and_ten_enough(tmp_path):
    path = tmp_path / "rows.json"
    rows = [{"instruction": f"q{i}", "output": "x"} for i in range(10)]
    path.write_text(json.dumps(rows[:9]))
    with pytest.raises(TaskError, match="too few rows for task plp: 9 usable of 9"):
        load(("plp",), path, 1)
    path.write_text(json.dumps(rows))
    assert len(load(("plp",), path, 1).train) == 8


def test_a_prompt_of_two_tasks_stays_on_one_side(tmp_path):
    rows = [{"instruction": f"q{i}", "output": "x"} for i in range(40)]
    (tmp_path / "plp.json").write_text(json.dumps(rows))
    (tmp_path / "mlperf.json").write_text(json.dumps(rows[:30]))
    data = load(("plp", "mlperf"), tmp_path, 5)
    assert_disjoint(data)
    assert any("copies of validation or test prompts" in note for note in data.notes)
