import pytest

from hpcjf.tasks.arithmetic import reward, split_rows
from hpcjf.tasks.base import Row


def test_all_sums_are_there_once():
    train, pool, test = split_rows()
    assert (len(train), len(pool), len(test)) == (8000, 1000, 1000)
    rows = [*train, *pool, *test]
    assert len({row.key for row in rows}) == 10_000
    for row in rows:
        a, b = row.prompt.removesuffix("=").split("+")
        assert len(a) == len(b) == 2
        assert row.references == (f"{int(a) + int(b):03d}",)


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
