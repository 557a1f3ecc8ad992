"""Dead dimensions: those that the fixed settings leave without any effect on training, so that a search wastes on them.

Only what is certain from how ``hpcjf.training`` computes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hpcjf.core.conditions import Conditions
from hpcjf.core.identity import plain
from hpcjf.study import SUPERVISED, AlgorithmSection, Categorical, Dimension, Study
from hpcjf.training.objectives.chosen import sampled_objective
from hpcjf.training.objectives.table import Critic, Hargo, Kl, PolicyGradient, Preference
from hpcjf.types import Scalar

_CLIPS = ("clip_range", "clip_range_high", "dual_clip", "value_clip")
_DECIDING = (
    "pipeline", "parallel_weight", "objective", "kl_coef", "kl_in", "value_coef", "hargo_alpha", "hargo_weights",
)  # fmt: skip
"""Settings that leave others without effect."""


def dead_dimensions(study: Study) -> dict[str, str]:
    """The reason by name, for the resolved ``study``."""
    space, possible = study.space or {}, Conditions(study.space or {}, study.algorithm.model_dump()).possible
    reasons = {}
    for name, dimension in space.items():
        needs = ", ".join(
            f"{other} {' or '.join(map(str, values))}" for other, values in (dimension.when or {}).items()
        )
        never = "" if name in possible else f"it is never active, since it needs {needs}"
        reason = never or _constant(name, dimension) or _idle(name, study) or _unread(name, dimension, study)
        if reason:
            reasons[name] = reason
    return reasons


def _idle(name: str, study: Study) -> str:
    """Without an effect on an update, whatever its value."""
    if name in _CLIPS and study.algorithm.minibatches == 1:
        return "algorithm.minibatches is 1: with one update per rollout batch the importance ratio is 1, never clipped"
    # the first step after the warm-up has the peak rate under both schedules
    if name == "lr_scheduler" and study.algorithm.warmup_steps >= study.budget.max - 1:
        return (
            f"of {study.budget.max} steps none comes after the warm-up and the peak: constant and cosine are the same"
        )
    return ""


def _unread(name: str, dimension: Dimension, study: Study) -> str:
    """Without a part in any pipeline and objective that it can meet."""
    met = {other: _values(other, study) for other in _DECIDING if other != name}
    for other, values in (dimension.when or {}).items():
        if other in met:
            met[other] = tuple(value for value in met[other] if value in values)
    for values in product(*met.values()):
        settings = study.algorithm.model_dump() | dict(zip(met, values, strict=True))
        ends = [AlgorithmSection.model_validate(settings | {name: end}) for end in _ends(dimension)]
        if len({repr(_read(end)) for end in ends}) > 1:
            return ""
    pipelines, objectives = (
        ", ".join(map(str, met.get(each, _values(each, study)))) for each in ("pipeline", "objective")
    )
    where = objectives if pipelines == "rl" else f"{pipelines} with {objectives}"
    return f"with these settings it changes nothing in {where}"


def _read(algorithm: AlgorithmSection) -> list[object]:
    """What training reads of the settings that may be searched."""
    pipeline, share = algorithm.pipeline, algorithm.parallel_weight if algorithm.pipeline == "parallel" else None
    found: list[object] = [algorithm.base, algorithm.grad_clip, algorithm.lr_scheduler, share]
    if pipeline != "rl" and share != 1:
        found += [pipeline, algorithm.sft_learning_rate, algorithm.sft_share if pipeline == "sft_then_rl" else None]
    if pipeline not in SUPERVISED and share != 0:
        found += [algorithm.learning_rate, algorithm.rollouts, _essence(sampled_objective(algorithm))]
    return found


def _essence(objective: PolicyGradient | Preference) -> PolicyGradient | Preference:
    """``objective`` without what its other parts leave without effect."""
    if isinstance(objective, Preference):
        return objective
    kl, critic, hargo = objective.kl, objective.critic, objective.hargo
    if not kl.coefficient:
        kl = Kl("loss", 0.0, "k3")
    if critic and not critic.coefficient:
        critic = replace(critic, clip=Critic.clip)
    if hargo:
        if not kl.coefficient or kl.place == "reward":
            hargo = replace(hargo, weighted_kl=Hargo.weighted_kl, flat_kl=Hargo.flat_kl)
        if hargo.weights == "confidence":
            hargo = replace(hargo, alpha=Hargo.alpha)
        elif not hargo.alpha:
            hargo = replace(hargo, decay=Hargo.decay)
    return replace(objective, kl=kl, critic=critic, hargo=hargo)


def _values(name: str, study: Study) -> tuple[Scalar, ...]:
    dimension = (study.space or {}).get(name)
    return (getattr(study.algorithm, name),) if dimension is None else _ends(dimension)


def _ends(dimension: Dimension) -> tuple[Scalar, ...]:
    return dimension.choices if isinstance(dimension, Categorical) else (dimension.low, dimension.high)


def _constant(name: str, dimension: Dimension) -> str:
    taken = {_trained(name, value) for value in _ends(dimension)}
    return f"training takes {taken.pop()} for all of its values" if len(taken) == 1 else ""


def _trained(name: str, value: Scalar) -> Scalar:
    """What training makes of a value."""
    return plain(getattr(AlgorithmSection.model_validate({name: plain(value)}), name))
