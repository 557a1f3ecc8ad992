from __future__ import annotations

import math

import pytest
import torch

from hpcjf.training.objectives.value import value_loss

EVERYWHERE = torch.ones(1, 4, dtype=torch.bool)


def test_value_loss_by_hand() -> None:
    old = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    new = torch.tensor([[0.1, 0.5, -0.5, 1.0]])
    returns = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    # within the range; beyond it towards the return: as if it had stopped at 0.2; away from it: the larger error
    expected = [0.5 * 0.9**2, 0.5 * 0.8**2, 0.5 * 1.5**2, 0.0]
    assert value_loss(new, old, returns, EVERYWHERE, 0.2).tolist()[0] == pytest.approx(expected)


def test_a_step_beyond_the_range_towards_the_return_has_no_gradient() -> None:
    new = torch.tensor([[0.1, 0.5, -0.5, 1.0]], requires_grad=True)
    value_loss(new, torch.zeros(1, 4), torch.ones(1, 4), EVERYWHERE, 0.2).sum().backward()
    assert new.grad is not None
    assert new.grad.tolist()[0] == pytest.approx([-0.9, 0.0, -1.5, 0.0])


def test_masked_values_leak_nothing() -> None:
    new = torch.tensor([[0.1, math.nan, math.inf, 0.3]], requires_grad=True)
    old = torch.tensor([[0.0, math.nan, 0.0, math.nan]])
    returns = torch.tensor([[1.0, math.nan, math.nan, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, False, False, False]])
    loss = value_loss(new, old, returns, mask, 0.2)
    loss.sum().backward()
    assert loss.tolist()[0] == pytest.approx([0.405, 0.0, 0.0, 0.0])
    assert new.grad is not None
    assert new.grad.tolist()[0] == pytest.approx([-0.9, 0.0, 0.0, 0.0])
