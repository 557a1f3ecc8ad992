"""HARGO (arXiv 2607.28301): each response has its own weight, from how far its advantage stands out in its group and
from the confidence of the reference policy in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hpcjf.training.objectives.advantages import EPSILON, Advantages
from hpcjf.training.objectives.aggregate import masked_mean, response_scales
from hpcjf.training.objectives.logprobs import response_logprobs
from hpcjf.training.objectives.table import Hargo

_THRESHOLD = 1e-6  # on Σ_j d_j: below it no response of the group stands out


@dataclass(frozen=True)
class HargoWeights:
    """The signals of a batch of P groups, float64 ``[P, G]``: A' (A in ablation B2), c, d and w. The weights of a group
    add up to 1; responses without a finite reward have A' = c = d = w = 0. ``fallback`` bool ``[P]``: equal weights."""

    advantages: Tensor
    confidence: Tensor
    distinction: Tensor
    weights: Tensor
    fallback: Tensor

    def of(self, groups: slice) -> HargoWeights:
        """Those of some groups."""
        return HargoWeights(
            self.advantages[groups],
            self.confidence[groups],
            self.distinction[groups],
            self.weights[groups],
            self.fallback[groups],
        )


def reference_confidence(
    reference: Tensor, mask: Tensor, running: float | None, decay: float
) -> tuple[Tensor, float | None]:
    """c_i = σ(ℓ_i - ℓ̄) ``[B]`` and the new ℓ̄ (step 2), ℓ_i the mean of ``reference`` ``[B, T]`` over the bool ``mask``.

    Called once for a whole batch: ℓ̄ ← ρ ℓ̄ + (1 - ρ) mean ℓ comes before c, ρ = ``decay``. ``running`` is the ℓ̄ of the
    batch before; None, at the start, takes the mean of this batch, which the paper leaves open. Responses without
    tokens have c = 0 and count in no mean.
    """
    present = mask.any(1)
    level = response_logprobs(reference.double(), mask, mean=True)
    if not bool(present.any()):
        return torch.zeros_like(level), running
    mean = masked_mean(level, present)
    running = mean if running is None else decay * running + (1 - decay) * mean
    return torch.where(present, (level - running).sigmoid(), 0.0), running


def hargo_weights(settings: Hargo, advantages: Advantages, confidence: Tensor) -> HargoWeights:
    """Steps 3 and 4; ``confidence`` is ``[P, G]``.

    A' = A (1 + α c), d = |A'| / (max |A'| + ε), w = d / Σ d, with ε = 1e-4 as in the advantages; in ablation B2 A' = A
    and w = c / Σ c. Equal weights where rewards are equal or Σ d vanishes.
    """
    valid = advantages.valid
    trust = torch.where(valid, confidence.to(advantages.values), 0.0)
    by_confidence = settings.weights == "confidence"
    scaled = advantages.values if by_confidence else advantages.values * (1 + settings.alpha * trust)
    distinction = scaled.abs() / (scaled.abs().amax(1, keepdim=True) + EPSILON)
    source = trust if by_confidence else distinction
    total = source.sum(1, keepdim=True)
    fallback = advantages.zero_variance.unsqueeze(1) | (total < _THRESHOLD)
    equal = valid.double() / valid.sum(1, keepdim=True).clamp_min(1)
    weights = torch.where(fallback, equal, source / total.clamp_min(_THRESHOLD))
    return HargoWeights(scaled, trust, distinction, weights, fallback.squeeze(1))


def hargo_scales(settings: Hargo, weights: HargoWeights, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the surrogate and of the KL (step 5) for a minibatch of whole groups, both ``[P * G]``; ``lengths``
    ``[P * G]`` as for :func:`~hpcjf.training.objectives.aggregate.response_scales`."""
    scales = response_scales(lengths, "sequence_mean", weights=weights.weights.flatten())
    kl_scales = scales if settings.weighted_kl else response_scales(lengths, "sequence_mean")
    dropped = weights.fallback.to(lengths.device).repeat_interleave(weights.weights.shape[1])
    return scales, kl_scales if settings.flat_kl else torch.where(dropped, 0.0, kl_scales)


def hargo_metrics(weights: HargoWeights, valid: Tensor) -> dict[str, float]:
    """For A', c, d and w the mean over the ``valid`` ``[P, G]`` responses and the mean over groups of the spread inside
    (standard deviation, n denominator), and the share of groups that fell back. Weights of spread 0 are GRPO's."""
    found = {"hargo_fallback": masked_mean(weights.fallback.double(), valid.any(1))}
    for name, signal in (
        ("advantage", weights.advantages),
        ("confidence", weights.confidence),
        ("distinction", weights.distinction),
        ("weight", weights.weights),
    ):
        count = valid.sum(1).clamp_min(1)
        mean = (signal * valid).sum(1) / count
        variance = ((signal - mean.unsqueeze(1)).square() * valid).sum(1) / count
        found[f"hargo_{name}_mean"] = masked_mean(signal, valid)
        found[f"hargo_{name}_spread"] = masked_mean(variance.sqrt(), valid.any(1))
    return found
