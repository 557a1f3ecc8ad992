import pytest

from hpcjf.tasks.arithmetic import reward, split_rows
from hpcjf.tasks.base import Row, TaskData


def test_all_sums_are_there_once():
    train, pool, test = split_rows()
    assert (len(train), len(pool), len(test)) == (8000, 1000, 1000)
    rows = [*train, *pool, *test]
    assert len({row.key for row in rows}) == 10_000
    for row in rows:
        a, b = row.prompt.removesuffix("=").split("+")
        assert len(a) == len(b) == 2
        assert row.references == (f"{int(a) + int(b):03d}",)


def test_all_differences_are_there_once_with_their_sign():
    parts = split_rows("subtraction")
    assert [len(part) for part in parts] == [8000, 1000, 1000]
    rows = [row for part in parts for row in part]
    assert len({row.key for row in rows}) == 10_000
    for row in rows:
        a, b = row.prompt.removesuffix("=").split("-")
        assert len(a) == len(b) == 2
        sign = "-" if int(a) < int(b) else "+"
        assert row.references == (f"{sign}{abs(int(a) - int(b)):02d}",)
    answers = {row.prompt: row.references[0] for row in rows}
    assert (answers["07-85="], answers["85-07="], answers["05-05="]) == ("-78", "+78", "+00")


def test_rows_never_change_since_models_were_taught_on_them():
    assert TaskData.of(*split_rows()).fingerprint == "1f39a5058be2217efa064f2690803d8e"
    assert TaskData.of(*split_rows("subtraction")).fingerprint == "a1996221c0cc8c204fb0aa0328cb0a0a"


def test_split_is_the_same_every_time_and_looks_random():
    assert split_rows() == split_rows()
    _, pool, test = split_rows()
    for part in (pool, test):
        mean = sum(int(row.references[0]) for row in part) / len(part)
        assert mean == pytest.approx(99, abs=5)
    assert [row.prompt for row in test[:3]] != sorted(row.prompt for row in test[:3])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("092", 1.0),
        ("92", 0.0),
        ("092 ", 0.0),
        ("0092", 0.0),
        ("093", 0.0),
        ("", 0.0),
        ("0", 0.0),
        ("٠٩٢", 0.0),
        ("092" * 10_000, 0.0),
        ("07+85=092", 0.0),
    ],
)
def test_only_the_three_digits_earn_the_reward(response, expected):
    assert reward(Row.of("07+85=", ("092",), "arithmetic"), response) == expected


@pytest.mark.parametrize(("response", "expected"), [("+78", 1.0), ("-78", 0.0), ("78", 0.0), ("+78 ", 0.0)])
def test_a_difference_earns_the_reward_with_its_sign_only(response, expected):
    assert reward(Row.of("85-07=", ("+78",), "subtraction"), response) == expected
