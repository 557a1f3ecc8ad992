"""Objectives on judged responses. Each gives one loss per pair or response, ``[B]``; their mean is taken by
:mod:`~hpcjf.training.objectives.aggregate`, with the valid ones as mask and as lengths of 1."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """-log σ(m) and m = β [log π/π_ref (chosen) - log π/π_ref (rejected)] (DPO, eq. 7); arguments ``[B]`` are
    log-probabilities of whole responses. The pair is told right where m > 0."""
    margin = beta * ((chosen - reference_chosen) - (rejected - reference_rejected))
    return -logsigmoid(margin), margin.detach()


def simpo_loss(chosen: Tensor, rejected: Tensor, beta: float, margin: float) -> tuple[Tensor, Tensor]:
    """-log σ(m - γ) and m = β (chosen - rejected) (SimPO, eq. 6), γ the target ``margin``; arguments ``[B]`` are mean
    log-probabilities per token."""
    difference = beta * (chosen - rejected)
    return -logsigmoid(difference - margin), difference.detach()


def kto_loss(
    logprobs: Tensor,
    reference: Tensor,
    desirable: Tensor,
    kl: float,
    beta: float,
    balance: tuple[float, float] = (1.0, 1.0),
) -> tuple[Tensor, Tensor]:
    """λ_D (1 - σ(β (r - z))) where ``desirable`` (bool), λ_U (1 - σ(β (z - r))) elsewhere, and β r (KTO, eq. 7).

    r = log π/π_ref of whole responses, arguments ``[B]``; z = ``kl`` from :func:`kto_kl`; ``balance`` = (λ_D, λ_U).
    """
    ratio = logprobs - reference
    sign = desirable.to(ratio.dtype) * 2 - 1
    weight = desirable * balance[0] + ~desirable * balance[1]
    return weight * (beta * sign * (kl - ratio)).sigmoid(), beta * ratio.detach()


def kto_kl(logprobs: Tensor, reference: Tensor) -> float:
    """z = max(0, mean of log π/π_ref) over prompts with responses of others ``[B]``; no gradient (KTO, sec. 4)."""
    return float((logprobs - reference).detach().double().mean().clamp_min(0))
