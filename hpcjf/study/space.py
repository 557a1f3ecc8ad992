"""What the search varies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hpcjf.study.base import Section

Value = bool | int | float | str


def _listed(values: Any) -> Any:
    """``{name: value}`` means ``{name: [value]}``."""
    if not isinstance(values, dict):
        return values
    return {name: value if isinstance(value, list | tuple) else [value] for name, value in values.items()}


_Values = Annotated[tuple[Value, ...], Field(min_length=1)]


class _Conditional(Section):
    when: Annotated[dict[str, _Values] | None, BeforeValidator(_listed)] = Field(
        None, description="Searched only where each of these names has (one of) these values."
    )


class RealRange(_Conditional):
    type: Literal["real"] = "real"
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be smaller than high ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError("a log range needs low > 0")
        return self


class IntegerRange(_Conditional):
    type: Literal["integer"]
    low: int
    high: int
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low}) must be smaller than high ({self.high})")
        if self.log and self.low <= 0:
            raise ValueError("a log range needs low > 0")
        return self


class Categorical(_Conditional):
    type: Literal["categorical"]
    choices: tuple[Value, ...] = Field(min_length=2)


Dimension = Annotated[RealRange | IntegerRange | Categorical, Field(discriminator="type")]
SEARCHABLE = (
    "base", "pipeline", "objective", "learning_rate", "lr_scheduler", "clip_range", "clip_range_high", "dual_clip",
    "grad_clip", "kl_coef", "kl_estimator", "kl_in", "rollouts", "dynamic_sampling", "value_coef", "value_clip",
    "value_lr_factor", "gae_lambda", "hargo_alpha", "hargo_rho", "hargo_weights", "hargo_weighted_kl",
    "hargo_flat_kl", "preference_beta", "preference_margin", "sft_learning_rate", "sft_share", "parallel_weight",
)  # fmt: skip
"""The names that ``space`` may search, in canonical order."""
