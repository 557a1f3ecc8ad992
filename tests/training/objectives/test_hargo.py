"""HARGO on two groups of three responses, against the steps of the paper in plain Python."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.training.objectives.advantages import group_advantages
from hpcjf.training.objectives.aggregate import response_scales
from hpcjf.training.objectives.hargo import (
    HargoWeights,
    hargo_metrics,
    hargo_scales,
    hargo_weights,
    reference_confidence,
)
from hpcjf.training.objectives.policy_loss import policy_loss
from hpcjf.training.objectives.table import HARGO_ABLATIONS, OBJECTIVES, Hargo, PolicyGradient

NAN = math.nan
REWARDS = [1.0, 0.0, 0.5, 2.0, 2.0, 2.0]
REFERENCE = [[-1.0, -3.0], [-0.5], [-0.2, -0.4], [-1.0], [-2.0, -2.0], [-0.3]]
NEW = [[-1.2, -2.0], [-0.9], [-0.2, -0.1], [-1.0], [-1.7, -2.0], [-0.4]]
OLD = [[-1.0, -2.3], [-0.5], [-0.3, -0.2], [-1.2], [-1.9, -2.1], [-0.4]]
RUNNING = -1.5


def padded(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([row + [NAN] * (2 - len(row)) for row in rows], dtype=torch.float64)


MASK = ~padded(NEW).isnan()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


LEVELS = [sum(row) / len(row) for row in REFERENCE]
SHIFTED = 0.9 * RUNNING + 0.1 * sum(LEVELS) / 6
CONFIDENCE = [sigmoid(level - SHIFTED) for level in LEVELS]
STANDARD = [0.5 / (0.5 + 1e-4), -0.5 / (0.5 + 1e-4), 0.0]
"""(r - mean) / (std + 1e-4) of the first group; the second has no variance."""


def weights(settings: Hargo, rewards: list[float | None] | None = None) -> HargoWeights:
    found, _ = reference_confidence(padded(REFERENCE), MASK, RUNNING, settings.decay)
    return hargo_weights(settings, group_advantages(rewards or list(REWARDS), 3), found.view(2, 3))


def test_confidence_by_hand() -> None:
    found, running = reference_confidence(padded(REFERENCE), MASK, RUNNING, 0.9)
    assert running == pytest.approx(SHIFTED)
    assert found.tolist() == pytest.approx(CONFIDENCE)


def test_the_running_level_is_a_value_that_is_handed_on() -> None:
    _, first = reference_confidence(padded(REFERENCE), MASK, None, 0.9)
    assert first == pytest.approx(sum(LEVELS) / 6)
    _, second = reference_confidence(padded(REFERENCE) - 1, MASK, first, 0.9)
    assert second == pytest.approx(sum(LEVELS) / 6 - 0.1)


def test_responses_without_tokens_count_in_no_level() -> None:
    mask = MASK.clone()
    mask[0] = False
    found, running = reference_confidence(padded(REFERENCE), mask, None, 0.9)
    assert running == pytest.approx(sum(LEVELS[1:]) / 5)
    assert found[0] == 0
    nothing, kept = reference_confidence(padded(REFERENCE), torch.zeros_like(MASK), -0.7, 0.9)
    assert kept == -0.7
    assert not nothing.any()


def test_the_full_method_by_hand() -> None:
    found = weights(Hargo())
    scaled = [a * (1 + 0.3 * c) for a, c in zip(STANDARD, CONFIDENCE[:3], strict=True)]
    top = max(map(abs, scaled)) + 1e-4
    distinction = [abs(a) / top for a in scaled]
    assert found.advantages.tolist() == [pytest.approx(scaled), [0.0] * 3]
    assert found.distinction.tolist() == [pytest.approx(distinction), [0.0] * 3]
    assert found.weights.tolist()[0] == pytest.approx([d / sum(distinction) for d in distinction])
    assert found.weights.tolist()[1] == [1 / 3] * 3
    assert found.fallback.tolist() == [False, True]


def test_ablation_b1_leaves_the_confidence_out() -> None:
    found = weights(HARGO_ABLATIONS["B1"])
    assert found.advantages.tolist()[0] == pytest.approx(STANDARD)
    assert found.weights.tolist()[0] == pytest.approx([0.5, 0.5, 0.0])


def test_ablation_b2_weighs_by_confidence_and_leaves_the_advantages_as_they_are() -> None:
    found = weights(HARGO_ABLATIONS["B2"])
    assert found.advantages.tolist()[0] == pytest.approx(STANDARD)
    assert found.weights.tolist()[0] == pytest.approx([c / sum(CONFIDENCE[:3]) for c in CONFIDENCE[:3]])
    assert found.weights.tolist()[1] == [1 / 3] * 3


def test_ablation_b3_is_the_method() -> None:
    objective = OBJECTIVES["hargo"]
    assert isinstance(objective, PolicyGradient)
    assert HARGO_ABLATIONS["B3"] == objective.hargo


@pytest.mark.parametrize("ablation", ["B1", "B2", "B3"])
@pytest.mark.parametrize("bad", [NAN, None, math.inf])
def test_a_response_without_a_finite_reward_has_no_weight(bad: float | None, ablation: str) -> None:
    found = weights(HARGO_ABLATIONS[ablation], [1.0, bad, 0.5, 2.0, bad, 2.0])
    assert found.weights[:, 1].tolist() == [0.0, 0.0]
    assert found.weights.sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert found.weights[1].tolist() == [0.5, 0.0, 0.5]
    for signal in (found.advantages, found.confidence, found.distinction):
        assert not signal[:, 1].any()


def test_a_group_without_any_finite_reward_weighs_nothing() -> None:
    found = weights(Hargo(), [None, NAN, None, 1.0, 2.0, 3.0])
    assert found.weights[0].tolist() == [0.0] * 3


def token_means(gains: list[float], beta: float) -> tuple[list[float], list[float]]:
    """Per response the mean of the clipped surrogate and of β k3 over its tokens."""
    surrogates, kls = [], []
    for new, old, ref, gain in zip(NEW, OLD, REFERENCE, gains, strict=True):
        ratios = [math.exp(n - o) for n, o in zip(new, old, strict=True)]
        surrogates.append(sum(-min(r * gain, min(max(r, 0.8), 1.2) * gain) for r in ratios) / len(new))
        kls.append(beta * sum(math.exp(r - n) - (r - n) - 1 for r, n in zip(ref, new, strict=True)) / len(new))
    return surrogates, kls


@pytest.mark.parametrize("weighted_kl", [False, True])
@pytest.mark.parametrize("flat_kl", [False, True])
def test_the_loss_by_hand(weighted_kl: bool, flat_kl: bool) -> None:
    objective = OBJECTIVES["hargo"]
    assert isinstance(objective, PolicyGradient)
    settings = Hargo(weighted_kl=weighted_kl, flat_kl=flat_kl)
    found = weights(settings)
    scales, kl_scales = hargo_scales(settings, found, MASK.sum(1))
    loss = policy_loss(
        replace(objective, hargo=settings),
        padded(NEW),
        padded(OLD),
        found.advantages.flatten(),
        MASK,
        scales,
        reference=padded(REFERENCE),
        kl_scales=kl_scales,
    )
    scaled = [a * (1 + 0.3 * c) for a, c in zip(STANDARD, CONFIDENCE[:3], strict=True)] + [0.0] * 3
    total = sum(map(abs, scaled))
    w = [abs(a) / total for a in scaled[:3]] + [1 / 3] * 3
    surrogates, kls = token_means(scaled, 0.02)
    inside = w if weighted_kl else [1 / 3] * 6
    kept = [True] * 3 + [flat_kl] * 3
    expected = sum(a * s for a, s in zip(w, surrogates, strict=True))
    expected += sum(a * k for a, k, keep in zip(inside, kls, kept, strict=True) if keep)
    assert float(loss.total) == pytest.approx(expected / 2)


def test_with_equal_weights_the_loss_is_that_of_grpo() -> None:
    settings = Hargo(alpha=0.0)
    lengths = torch.tensor([2, 1, 4, 3])
    found = hargo_weights(settings, group_advantages([0.0, 1.0, 7.0, 3.0], 2), torch.full((2, 2), 0.5))
    scales, kl_scales = hargo_scales(settings, found, lengths)
    assert scales.tolist() == pytest.approx(response_scales(lengths, "sequence_mean").tolist())
    assert torch.equal(kl_scales, response_scales(lengths, "sequence_mean"))


def test_metrics_by_hand() -> None:
    advantages = group_advantages(list(REWARDS), 3)
    found = weights(Hargo())
    metrics = hargo_metrics(found, advantages.valid)
    w = found.weights.tolist()[0]
    spread = math.sqrt(sum((x - 1 / 3) ** 2 for x in w) / 3)
    assert metrics["hargo_fallback"] == 0.5
    assert metrics["hargo_weight_mean"] == pytest.approx(1 / 3)
    assert metrics["hargo_weight_spread"] == pytest.approx(spread / 2)
    assert metrics["hargo_confidence_mean"] == pytest.approx(sum(CONFIDENCE) / 6)
    assert metrics["hargo_advantage_mean"] == pytest.approx(found.advantages.sum() / 6)
    assert set(metrics) == {"hargo_fallback"} | {
        f"hargo_{signal}_{kind}"
        for signal in ("advantage", "confidence", "distinction", "weight")
        for kind in ("mean", "spread")
    }


def test_metrics_of_nothing_are_no_measurement() -> None:
    advantages = group_advantages([None] * 4, 2)
    found = hargo_weights(Hargo(), advantages, torch.zeros(2, 2))
    assert all(math.isnan(value) for value in hargo_metrics(found, advantages.valid).values())


REWARD = st.none() | st.floats(-100, 100)


@given(
    st.lists(REWARD, min_size=4, max_size=4),
    st.lists(st.floats(0.001, 0.999), min_size=4, max_size=4),
    st.sampled_from(["B1", "B2", "B3"]),
)
def test_weights_add_up_to_one_and_signs_stay(
    rewards: list[float | None], confidence: list[float], ablation: str
) -> None:
    advantages = group_advantages(rewards, 4)
    found = hargo_weights(HARGO_ABLATIONS[ablation], advantages, torch.tensor([confidence]))
    assert bool((found.weights >= 0).all())
    if advantages.valid.any():
        assert float(found.weights.sum()) == pytest.approx(1.0)
    assert torch.equal(found.advantages.sign(), advantages.values.sign())
    factor = found.advantages.abs() / advantages.values.abs()
    assert bool(((factor >= 1) & (factor < 1.3) | factor.isnan()).all())
