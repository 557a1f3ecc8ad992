"""From a study's settings to the objective that they mean. Imports no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from hpcjf.study import AlgorithmSection
from hpcjf.training.objectives.table import OBJECTIVES, Critic, Hargo, Kl, PolicyGradient, Preference
from hpcjf.types import Scalar

Part = TypeVar("Part", PolicyGradient, Preference, Critic, Hargo)


def sampled_objective(algorithm: AlgorithmSection) -> PolicyGradient | Preference:
    """The table's entry with what ``algorithm`` sets in its place."""
    base = OBJECTIVES[algorithm.objective]
    if isinstance(base, Preference):
        margin = algorithm.preference_margin if base.margin else None
        return _with(base, beta=algorithm.preference_beta, margin=margin)
    return policy_gradient(algorithm)


def policy_gradient(algorithm: AlgorithmSection) -> PolicyGradient:
    """:func:`sampled_objective` where it is one of these.

    Without ``clip_range_high`` the upper range keeps its ratio to the lower one. A KL that is moved without naming an
    estimator takes the one that fits there: k1 in the reward, k3 in the loss.
    """
    base = OBJECTIVES[algorithm.objective]
    assert isinstance(base, PolicyGradient)
    low, high = algorithm.clip_range, algorithm.clip_range_high
    if low is not None and high is None:
        high = low * (base.clip_high / base.clip_low)
    return _with(
        base,
        clip_low=low,
        clip_high=high,
        dual_clip=algorithm.dual_clip,
        dynamic_sampling=algorithm.dynamic_sampling,
        max_redraws=algorithm.max_redraws,
        kl=_kl(base.kl, algorithm),
        critic=base.critic and _critic(base.critic, algorithm),
        hargo=base.hargo and _hargo(base.hargo, algorithm),
    )


def default_settings(objective: str) -> dict[str, Scalar]:
    """The values that null settings stand for under ``objective``, by their names in AlgorithmSection."""
    found = sampled_objective(AlgorithmSection.model_validate({"objective": objective}))
    if isinstance(found, Preference):
        beta: dict[str, Scalar] = {"preference_beta": found.beta}
        return beta | ({"preference_margin": found.margin} if found.margin else {})
    values: dict[str, Scalar | None] = {
        "clip_range": found.clip_low,
        "clip_range_high": found.clip_high,
        "dual_clip": found.dual_clip,
        "kl_coef": found.kl.coefficient,
        "kl_estimator": found.kl.estimator,
        "kl_in": found.kl.place,
        "dynamic_sampling": found.dynamic_sampling,
        "max_redraws": found.max_redraws,
    }
    if found.critic:
        values |= {"value_coef": found.critic.coefficient, "value_clip": found.critic.clip}
        values |= {"value_lr_factor": found.critic.rate_factor, "gae_lambda": found.critic.decay}
    if found.hargo:
        values |= {"hargo_alpha": found.hargo.alpha, "hargo_rho": found.hargo.decay}
        values |= {"hargo_weights": found.hargo.weights, "hargo_weighted_kl": found.hargo.weighted_kl}
        values["hargo_flat_kl"] = found.hargo.flat_kl
    return {name: value for name, value in values.items() if value is not None}


def _kl(base: Kl, algorithm: AlgorithmSection) -> Kl:
    place = algorithm.kl_in or base.place
    fitting = base.estimator if place == base.place else "k1" if place == "reward" else "k3"
    coefficient = base.coefficient if algorithm.kl_coef is None else algorithm.kl_coef
    return Kl(place, coefficient, algorithm.kl_estimator or fitting)


def _critic(base: Critic, algorithm: AlgorithmSection) -> Critic:
    return _with(
        base,
        decay=algorithm.gae_lambda,
        clip=algorithm.value_clip,
        coefficient=algorithm.value_coef,
        rate_factor=algorithm.value_lr_factor,
    )


def _hargo(base: Hargo, algorithm: AlgorithmSection) -> Hargo:
    return _with(
        base,
        alpha=algorithm.hargo_alpha,
        decay=algorithm.hargo_rho,
        weights=algorithm.hargo_weights,
        weighted_kl=algorithm.hargo_weighted_kl,
        flat_kl=algorithm.hargo_flat_kl,
    )


def _with(base: Part, **settings: Any) -> Part:
    return replace(base, **{name: value for name, value in settings.items() if value is not None})
