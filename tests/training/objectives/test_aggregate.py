from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.errors import TrainingError
from hpcjf.training.objectives.aggregate import masked_mean, response_scales, weighted_sum
from hpcjf.training.objectives.table import Aggregation

KINDS: tuple[Aggregation, ...] = ("sequence_mean", "token_mean", "max_length")
VALUES = torch.tensor([[1.0, 3.0, math.nan], [5.0, math.inf, 7.0], [9.0, 9.0, 9.0]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sequence_mean", ((1.0 + 3.0) / 2 + 5.0) / 2),
        ("token_mean", (1.0 + 3.0 + 5.0) / 3),
        ("max_length", (1.0 + 3.0 + 5.0) / (2 * 10)),
    ],
)
def test_a_response_without_tokens_counts_nowhere(kind: Aggregation, expected: float) -> None:
    scales = response_scales(MASK.sum(1), kind, max_length=10)
    assert float(weighted_sum(VALUES, MASK, scales)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sequence_mean", (3 * (1.0 + 3.0) / 2 + 1 * 5.0) / 4),
        ("token_mean", (3 * (1.0 + 3.0) + 5.0) / (3 * 2 + 1)),
        ("max_length", (3 * (1.0 + 3.0) + 5.0) / (4 * 10)),
    ],
)
def test_weights_shift_the_mean(kind: Aggregation, expected: float) -> None:
    scales = response_scales(MASK.sum(1), kind, weights=torch.tensor([3.0, 1.0, 7.0]), max_length=10)
    assert float(weighted_sum(VALUES, MASK, scales)) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_masked_is_zero_with_zero_gradient_and_no_measurement(kind: Aggregation) -> None:
    values = torch.full((2, 3), math.nan, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    loss = weighted_sum(values, mask, response_scales(mask.sum(1), kind, max_length=10))
    loss.backward()
    assert float(loss.detach()) == 0
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0] * 3] * 2
    assert math.isnan(masked_mean(values, mask))


def test_one_value_a_response_stands_for_all_its_tokens() -> None:
    scales = response_scales(MASK.sum(1), "sequence_mean")
    assert float(weighted_sum(torch.tensor([[4.0], [8.0], [math.nan]]), MASK, scales)) == pytest.approx(6.0)


def test_the_mean_of_a_metric_takes_the_tokens_in_the_loss() -> None:
    assert masked_mean(VALUES, MASK) == pytest.approx(3.0)


def test_the_length_limit_is_not_guessed() -> None:
    with pytest.raises(TrainingError, match="length limit"):
        response_scales(torch.tensor([3]), "max_length")


@given(st.lists(st.integers(0, 4), min_size=2, max_size=6), st.sampled_from(KINDS), st.integers(1, 5))
def test_pieces_of_a_minibatch_add_up_to_it(lengths: list[int], kind: Aggregation, cut: int) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    values = torch.rand(len(lengths), 4, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    scales = response_scales(mask.sum(1), kind, max_length=4)
    parts = [weighted_sum(values[part], mask[part], scales[part]) for part in (slice(cut), slice(cut, None))]
    assert float(sum(parts)) == pytest.approx(float(weighted_sum(values, mask, scales)))
    if kind != "max_length" and any(lengths):  # a mean of equal values is that value
        assert float(weighted_sum(torch.ones_like(values), mask, scales)) == pytest.approx(1.0)
