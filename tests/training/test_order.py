from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpcjf.training.order import batch_indices, draw_indices, stream_seed
from hpcjf.training.schedule import rate_factor


@given(st.integers(1, 30), st.integers(0, 5), st.integers(1, 12))
def test_each_epoch_holds_each_row_once(rows: int, seed: int, size: int) -> None:
    walk = [i for step in range(3 * rows) for i in batch_indices(rows, seed, step, size)]
    for epoch in range(2):
        assert sorted(walk[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


def test_epochs_and_seeds_differ_and_a_step_is_a_function_of_its_number() -> None:
    first = batch_indices(50, 0, 0, 50)
    assert first != batch_indices(50, 0, 1, 50)
    assert first != batch_indices(50, 1, 0, 50)
    assert first == batch_indices(50, 0, 0, 50)
    assert batch_indices(50, 0, 7, 8) == [batch_indices(50, 0, i, 1)[0] for i in range(56, 64)]


def test_a_batch_larger_than_the_data_crosses_epochs() -> None:
    assert len(batch_indices(3, 0, 0, 8)) == 8


def test_order_and_streams_stay_what_they_were() -> None:
    """A checkpoint of an older version must meet the same data."""
    assert batch_indices(10, 0, 1, 4) == [5, 1, 2, 7]
    assert stream_seed(0, 0) == 3558906391716469279
    assert len({stream_seed(seed, step) for seed in range(20) for step in range(20)}) == 400


def test_further_draws_are_functions_of_seed_step_and_number() -> None:
    assert draw_indices(50, 1, 2, 0, 8) == batch_indices(50, 1, 2, 8)
    found = {(seed, step, redraw): tuple(draw_indices(50, seed, step, redraw, 8)) for seed in range(3)
             for step in range(3) for redraw in range(1, 3)}  # fmt: skip
    assert len(set(found.values())) == len(found)
    assert all(len(set(indices)) == 8 for indices in found.values())
    assert found[1, 2, 1] == tuple(draw_indices(50, 1, 2, 1, 8))
    assert sorted(draw_indices(3, 0, 0, 1, 6)) == [0, 0, 1, 1, 2, 2]
    assert len({stream_seed(0, step, redraw) for step in range(20) for redraw in range(4)}) == 80


def test_warm_up_rises_to_the_peak_and_never_starts_at_zero() -> None:
    assert [rate_factor("constant", i, 3, 10) for i in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_cosine_falls_from_the_peak_to_nearly_zero() -> None:
    factors = [rate_factor("cosine", i, 2, 12) for i in range(12)]
    assert factors[2] == 1.0
    assert factors[7] == 0.5
    assert 0 < factors[-1] < 0.03
    assert factors[2:] == sorted(factors[2:], reverse=True)
    assert rate_factor("cosine", 50, 2, 12) == 0.0
