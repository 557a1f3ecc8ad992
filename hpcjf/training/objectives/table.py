"""Every objective by name: the parts it is made of and their defaults. Imports no torch.

``docs/objectives.md`` holds the formulas; a trainer looks an entry up and replaces what a study sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Baseline = Literal["group_std", "group_mean", "leave_one_out"]
"""What is taken off a response's reward: the mean of its group (group_std: then over the standard deviation), or the
mean of the others in its group."""
RatioLevel = Literal["token", "sequence_mean", "sequence"]
"""One importance ratio per token, or one per response: the geometric mean of its tokens' ratios, or their product."""
Aggregation = Literal["sequence_mean", "token_mean", "max_length"]
"""How tokens are added up: each response the same, each token the same, or over responses times the length limit."""
Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class Kl:
    """KL to the reference policy: where it enters, its coefficient β and its estimator."""

    place: Literal["loss", "reward"]
    coefficient: float
    estimator: Estimator


@dataclass(frozen=True)
class Critic:
    """The value head of PPO: λ of the advantage estimate, clip range and coefficient of its loss, and its learning rate
    over the policy's."""

    decay: float = 0.95
    clip: float = 0.2
    coefficient: float = 0.1
    rate_factor: float = 10.0


@dataclass(frozen=True)
class Hargo:
    """Settings of HARGO beyond GRPO's. ``weights`` come from the scaled advantages, or from the confidence alone with
    the advantages as they are (ablation B2). ``weighted_kl`` puts the KL inside the weighting; without
    ``flat_kl`` groups of equal rewards have no KL."""

    alpha: float = 0.3
    decay: float = 0.9
    weights: Literal["advantage", "confidence"] = "advantage"
    weighted_kl: bool = False
    flat_kl: bool = True


@dataclass(frozen=True)
class PolicyGradient:
    """An objective on sampled responses. ``advantage`` "returns" means one per token: rewards to come, γ = 1, less the
    values of the ``critic`` if there is one, normalised over the batch. ``dual_clip`` > 1 also bounds the loss of
    unlikely responses. ``clip_low`` and ``clip_high`` are distances of the ratio from 1. ``max_redraws`` bounds what
    ``dynamic_sampling`` draws, in batches."""

    paper: str
    advantage: Baseline | Literal["returns"]
    aggregation: Aggregation
    kl: Kl
    ratio: RatioLevel = "token"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    dynamic_sampling: bool = False
    max_redraws: int = 3
    critic: Critic | None = None
    hargo: Hargo | None = None


@dataclass(frozen=True)
class Preference:
    """An objective on responses that were judged: pairs, or with ``paired`` False each by itself."""

    paper: str
    beta: float
    margin: float = 0.0
    paired: bool = True
    reference: bool = True


@dataclass(frozen=True)
class Supervised:
    """An objective on demonstrations."""

    paper: str
    aggregation: Aggregation = "token_mean"


Objective = PolicyGradient | Preference | Supervised

HARGO_ABLATIONS: Mapping[str, Hargo] = MappingProxyType(
    {"B1": Hargo(alpha=0.0), "B2": Hargo(weights="confidence"), "B3": Hargo()}
)
_NO_KL = Kl("loss", 0.0, "k3")

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "grpo": PolicyGradient("2402.03300", "group_std", "sequence_mean", Kl("loss", 0.001, "k3")),
        "dr_grpo": PolicyGradient("2503.20783", "group_mean", "max_length", _NO_KL),
        "dapo": PolicyGradient("2503.14476", "group_std", "token_mean", _NO_KL, clip_high=0.28, dynamic_sampling=True),
        "gspo": PolicyGradient(
            "2507.18071", "group_std", "sequence_mean", _NO_KL, "sequence_mean", clip_low=3e-4, clip_high=4e-4
        ),
        "rloo": PolicyGradient("2402.14740", "leave_one_out", "sequence_mean", Kl("reward", 0.05, "k1"), "sequence"),
        "reinforce_pp": PolicyGradient("2501.03262", "returns", "token_mean", Kl("reward", 0.01, "k1")),
        "ppo": PolicyGradient("1707.06347", "returns", "token_mean", Kl("reward", 0.05, "k1"), critic=Critic()),
        "hargo": PolicyGradient("2607.28301", "group_std", "sequence_mean", Kl("loss", 0.02, "k3"), hargo=Hargo()),
        "sft": Supervised("2203.02155"),
        "dpo": Preference("2305.18290", 0.1),
        "kto": Preference("2402.01306", 0.1, paired=False),
        "simpo": Preference("2405.14734", 2.0, margin=1.0, reference=False),
    }
)
