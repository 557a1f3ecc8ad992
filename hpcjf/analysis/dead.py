"""Dead dimensions: those that the fixed settings leave without any effect on training, so that a search wastes on them.

Only what is certain from how ``hpcjf.training`` computes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hpcjf.core.conditions import Conditions
from hpcjf.core.identity import plain
from hpcjf.study import AlgorithmSection, Categorical, Dimension, Study
from hpcjf.training.objectives.chosen import policy_gradient
from hpcjf.training.objectives.table import Critic, Hargo, Kl, PolicyGradient
from hpcjf.types import Scalar

_CLIPS = ("clip_range", "clip_range_high", "dual_clip", "value_clip")
_DECIDING = ("objective", "kl_coef", "kl_in", "value_coef", "hargo_alpha", "hargo_weights")
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
    """Without a part in any objective that it can meet."""
    if AlgorithmSection.model_fields[name].default is not None:
        return ""  # read by all objectives
    met = {other: _values(other, study) for other in _DECIDING if other != name}
    allowed = (dimension.when or {}).get("objective", met["objective"])
    met["objective"] = tuple(objective for objective in met["objective"] if objective in allowed)
    for values in product(*met.values()):
        settings = study.algorithm.model_dump() | dict(zip(met, values, strict=True))
        found = [policy_gradient(AlgorithmSection.model_validate(settings | {name: end})) for end in _ends(dimension)]
        if any(_essence(one) != _essence(found[0]) for one in found):
            return ""
    return f"with these settings it changes nothing in {', '.join(map(str, met['objective']))}"


def _essence(objective: PolicyGradient) -> PolicyGradient:
    """``objective`` without what its other parts leave without effect."""
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
