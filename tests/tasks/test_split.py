from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.tasks.base import Row
from hpcjf.tasks.prepare import Prepared, answers_by_key, listed
from hpcjf.tasks.split import shares, take_grouped, take_random, validation_candidates


def prepared(prompts, contradictory=()):
    rows = [Row.of(prompt, (str(i),), "mlperf") for i, prompt in enumerate(prompts)]
    return Prepared(rows, frozenset(row.key for row in rows if row.prompt in contradictory), [])


prompts = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=40)


@given(prompts, st.integers(0, 10))
def test_grouped_cut_loses_no_row_and_keeps_copies_together(names, count):
    data = prepared(names, contradictory="a")
    rest, test = take_grouped(data, count)
    assert len(test) <= count
    assert not {row.key for row in rest} & {row.key for row in test}
    assert Counter(rest + test) == Counter(row for row in data.rows if row.prompt != "a")
    assert [row for row in data.rows if row in set(rest)] == rest
    assert take_grouped(data, count) == (rest, test)


@given(prompts, st.integers(0, 10))
def test_random_cut_takes_the_exact_count(names, count):
    data = prepared(names, contradictory="a")
    rest, test = take_random(data, count)
    assert len(test) == min(count, len(names))
    assert Counter(rest) == Counter(row for row in data.rows if row not in set(test) and row.prompt != "a")
    assert take_random(data, count) == (rest, test)


def test_random_cut_separates_copies():
    rest, test = take_random(prepared("a" * 100), 50)
    assert {row.key for row in rest} == {row.key for row in test}


def test_cuts_do_not_follow_the_file_order():
    rest, test = take_grouped(prepared([f"p{i}" for i in range(200)]), 20)
    numbers = sorted(int(row.prompt[1:]) for row in test)
    assert numbers[0] < 60
    assert numbers[-1] > 140
    assert len(rest) == 180


def test_validation_candidates_are_one_row_a_prompt_without_the_taboo():
    rows = prepared("abcabc").rows
    found = validation_candidates(rows, {rows[1].key})
    assert sorted(row.prompt for row in found) == ["a", "c"]
    assert {row.references for row in found} == {("0",), ("2",)}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.data())
def test_shares_add_up_and_fit(sizes, data):
    total = data.draw(st.integers(0, sum(sizes)))
    found = shares(total, sizes)
    assert sum(found) == total
    for count, size in zip(found, sizes, strict=True):
        assert 0 <= count <= size
        if total:
            assert abs(count - total * size / sum(sizes)) < 1


@pytest.mark.parametrize(
    ("total", "sizes", "expected"), [(10, [50, 50], [5, 5]), (3, [1, 1, 1], [1, 1, 1]), (1, [1, 8], [0, 1])]
)
def test_shares_by_hand(total, sizes, expected):
    assert shares(total, sizes) == expected


def test_answers_keep_their_order():
    rows = [Row.of("q", (text,), "plp") for text in ("b", "a", "b")]
    assert answers_by_key(rows) == {rows[0].key: ("b", "a")}


def test_long_lists_of_rows_are_cut():
    assert listed([4]) == "row 4"
    assert listed([1, 2, 3, 4, 5]) == "row 1, 2, 3 and 2 more"
