import json
from pathlib import Path

import pytest

from hpcjf.tasks.base import Row
from hpcjf.tasks.files import RawRow, read_rows
from hpcjf.tasks.race import extract_yes_no, plain_code, prepare, reward

ROWS = Path(__file__).parent / "rows"
YES = Row.of("q", ("yes",), "race_c")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("yes", 1.0),
        ("Yes", 1.0),
        ("YES.", 1.0),
        (" yes\n", 1.0),
        ("\u00a0yes. \t", 1.0),
        ("no", 0.0),
        ("", 0.0),
        (".", 0.0),
        ("yes no", 0.0),
        ("yes yes", 0.0),
        ("yes..", 0.0),
        ("yes!", 0.0),
        ("'yes'", 0.0),
        ("yes, it does", 0.0),
        ("The answer is yes", 0.0),
        ("yeſ", 0.0),
        ("ｙｅｓ", 0.0),
        ("ye\u200bs", 0.0),
        ("y", 0.0),
        ("да", 0.0),
        ("yes" * 100_000, 0.0),
        (" " * 1_000_000 + "x", 0.0),
        ("\ud800yes", 0.0),
    ],
)
def test_only_the_right_word_alone_is_rewarded(response, expected):
    assert reward(YES, response) == expected


def test_the_other_label():
    row = Row.of("q", ("no",), "race_fortran")
    assert [reward(row, text) for text in ("No.", "yes", "none")] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Yes, there is no lock.", "yes"),
        ("There is NO race", "no"),
        ("not known, nobody knows", None),
        ("orig_no", None),
        ("", None),
        ("(yes)", "yes"),
        ("yesno", None),
    ],
)
def test_words_are_extracted_at_their_boundaries(text, word):
    assert extract_yes_no(text) == word


BARE = "Given the code snippet:\n#pragma omp single\nx = '''a''';\n, help me detect it."


@pytest.mark.parametrize(
    "wrapped",
    [
        BARE,
        "Given the code snippet: #pragma omp single\nx = '''a''';, help me detect it.",
        "Given the code snippet: ```\n#pragma omp single\nx = '''a''';\n```, help me detect it.",
        "Given the code snippet: ```c\n#pragma omp single\nx = '''a''';\n```\n, help me detect it.",
        "Given the code snippet:\n\n```cpp\n```\n  #pragma omp single\nx = '''a''';\n```\n```, help me detect it.",
        "Given the code snippet: ```Fortran \n#pragma omp single\nx = '''a''';\n```, help me detect it.",
        "Given the code snippet: \"\"\"\n#pragma omp single\nx = '''a''';\n\"\"\", help me detect it.",
        "Given the code snippet: '''\n#pragma omp single\nx = '''a''';\n''', help me detect it.",
    ],
)
def test_fenced_and_bare_snippets_become_one_prompt(wrapped):
    assert plain_code(wrapped) == BARE


def test_a_language_name_without_white_space_is_code():
    assert plain_code("```cats```") == "cats"


def raws(*pairs):
    return [RawRow(prompt, answer, number) for number, (prompt, answer) in enumerate(pairs, start=1)]


def test_labels_are_cleaned_and_the_rest_is_dropped_and_said():
    prepared = prepare(
        raws(("a", "yes"), ("b", " No\n"), ("c", "no\n\nmore"), ("d", "nothing"), ("e", ""), ("f", "the yes")),
        "race_c",
        mask=True,
    )
    assert [(row.prompt, row.references) for row in prepared.rows] == [("a", ("yes",)), ("b", ("no",)), ("c", ("no",))]
    assert prepared.notes == [
        "race_c: 3 rows without a yes/no label left out (row 4, 5, 6)",
        "race_c: 1 labels with more text cut to their first word (row 3)",
    ]


def test_contradictions_are_found_whatever_the_white_space_or_fence():
    prepared = prepare(raws(("a b", "yes"), ("```\na  b\n```", "no"), ("c", "no"), ("c", "no")), "race_c", mask=True)
    assert prepared.contradictory == {prepared.rows[0].key}
    assert any("1 prompts carry both labels (2 rows)" in note for note in prepared.notes)


def test_masking_can_be_switched_off():
    rows = raws(("program x_yes\n", "yes"))
    assert "x_yes" in prepare(rows, "race_fortran", mask=False).rows[0].prompt
    masked = prepare(rows, "race_fortran", mask=True)
    assert masked.rows[0].prompt == "program program_1\n"
    assert masked.notes == ["race_fortran: 1 prompts name a label, 1 the right one: names masked"]


def test_own_rows_hold_no_name_or_fence_after_cleaning():
    for name, task in (("task2_fortran.json", "race_fortran"), ("task2_c_c++.json", "race_c")):
        prepared = prepare(read_rows(ROWS / name), task, mask=True)
        text = json.dumps([row.prompt for row in prepared.rows])
        for trace in ("DRB", "_yes", "_no", "NoRace", "DataRace", "```", '\\"\\"\\"'):
            assert trace not in text
