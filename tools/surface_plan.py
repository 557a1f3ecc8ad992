"""Which curves ``tools/record_surface`` records, in which order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from scipy.stats import qmc

from hpcjf.core.identity import plain
from hpcjf.study import Categorical, Dimension, IntegerRange
from hpcjf.types import Config, Scalar

MODELS = {"arithmetic": ("xs", "s", "m", "l"), "subtraction": ("xs", "s", "m")}
"""The models of a task, proxy first, by the end of their names."""
CONFIGURATIONS, SOBOL_SEED = 48, 7
_SMALL, _LARGE = ("xs", "s", "m"), ("l",)
_CHUNK = {_SMALL: 8, _LARGE: 4}
"""Curves of a job: many, since it imports torch; fewer of the slow model, lest a core waits in the end."""
_STAGES = (
    (_SMALL, range(16), 0), (_LARGE, range(8), 0), (_SMALL, range(16, 32), 0),
    (_SMALL, range(16), 1), (_SMALL, range(32, 48), 0), (_LARGE, range(8, 16), 0),
)  # fmt: skip
"""Models, configurations and training seed."""


class Curve(NamedTuple):
    """One training run. ``trial`` is its place in the plan, ``configuration`` that in the sequence."""

    trial: int
    task: str
    model: str
    configuration: int
    seed: int


def plan() -> list[list[Curve]]:
    """The chunks of curves that a job trains, all of one task and model, in the order of their recording."""
    chunks: list[list[Curve]] = []
    trials = itertools.count()
    for models, places, seed in _STAGES:
        for start in range(places.start, places.stop, _CHUNK[models]):
            for model, task in itertools.product(models, MODELS):
                if model in MODELS[task]:
                    block = range(start, start + _CHUNK[models])
                    chunks.append([Curve(next(trials), task, model, place, seed) for place in block])
    return chunks


def space() -> dict[str, Any]:
    """The recipe's ranges, with the learning rates between those that do nothing and those that break all models."""
    recipe = yaml.safe_load((Path(__file__).parents[1] / "configs/recipes/tiny_arithmetic.yaml").read_text())
    return dict(recipe["ranges"]) | {"learning_rate": {"type": "real", "low": 3e-6, "high": 3e-3, "log": True}}


def configurations(dimensions: dict[str, Dimension]) -> list[Config]:
    """The first points of a scrambled Sobol sequence; drawn as a power of two, which keeps the sequence balanced."""
    points = qmc.Sobol(len(dimensions), scramble=True, rng=SOBOL_SEED).random(64)[:CONFIGURATIONS]
    pairs = [zip(dimensions.items(), point.tolist(), strict=True) for point in points]
    return [{name: _at(dimension, place) for (name, dimension), place in each} for each in pairs]


def _at(dimension: Dimension, place: float) -> Scalar:
    """The value at ``place`` in [0, 1)."""
    if isinstance(dimension, Categorical):
        return dimension.choices[int(place * len(dimension.choices))]
    low, high = dimension.low, dimension.high
    if isinstance(dimension, IntegerRange):
        return low + int(place * (high - low + 1))
    return plain(low * (high / low) ** place if dimension.log else low + place * (high - low))
