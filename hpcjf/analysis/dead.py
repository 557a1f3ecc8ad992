"""Dead dimensions: those that the fixed settings leave without any effect on training, so that a search wastes on them.

Only what is certain from how ``hpcjf.training`` computes.
"""

from __future__ import annotations

from hpcjf.core.conditions import Conditions
from hpcjf.core.identity import plain
from hpcjf.study import AlgorithmSection, Categorical, Dimension, Study
from hpcjf.types import Scalar


def dead_dimensions(study: Study) -> dict[str, str]:
    """The reason by name, for the resolved ``study``."""
    space, possible = study.space or {}, Conditions(study.space or {}, study.algorithm.model_dump()).possible
    reasons = {}
    for name, dimension in space.items():
        needs = ", ".join(
            f"{other} {' or '.join(map(str, values))}" for other, values in (dimension.when or {}).items()
        )
        never = "" if name in possible else f"it is never active, since it needs {needs}"
        reason = never or _constant(name, dimension) or _idle(name, study)
        if reason:
            reasons[name] = reason
    return reasons


def _idle(name: str, study: Study) -> str:
    """Without an effect on an update, whatever its value."""
    if name == "clip_range" and study.algorithm.minibatches == 1:
        return "algorithm.minibatches is 1: with one update per rollout batch the importance ratio is 1, never clipped"
    # the first step after the warm-up has the peak rate under both schedules
    if name == "lr_scheduler" and study.algorithm.warmup_steps >= study.budget.max - 1:
        return (
            f"of {study.budget.max} steps none comes after the warm-up and the peak: constant and cosine are the same"
        )
    return ""


def _constant(name: str, dimension: Dimension) -> str:
    ends = dimension.choices if isinstance(dimension, Categorical) else (dimension.low, dimension.high)
    taken = {_trained(name, value) for value in ends}
    return f"training takes {taken.pop()} for all of its values" if len(taken) == 1 else ""


def _trained(name: str, value: Scalar) -> Scalar:
    """What training makes of a value."""
    return plain(getattr(AlgorithmSection.model_validate({name: plain(value)}), name))
