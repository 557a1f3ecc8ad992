"""The shipped recipes are complete, legal and inside their own ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from hpcjf.core.space import Space
from hpcjf.study import SEARCHABLE, AlgorithmSection, Dimension

COMMON = ("learning_rate", "lr_scheduler", "clip_range", "grad_clip", "kl_coef", "rollouts")

FOLDER = Path(__file__).parents[1] / "configs" / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"))


@pytest.fixture(params=RECIPES, ids=lambda path: path.stem)
def recipe(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(yaml.safe_load(request.param.read_text()))


def test_the_promised_recipes_are_there() -> None:
    assert {path.stem for path in RECIPES} >= {"verl_grpo_gsm8k", "lora_small", "tiny_arithmetic"}


def test_a_recipe_says_what_it_is_for_and_where_it_comes_from(recipe: dict[str, Any]) -> None:
    assert set(recipe) == {"model_class", "source", "values", "ranges"}
    assert recipe["model_class"]
    assert recipe["source"]


def test_values_cover_what_grpo_has_and_are_legal_settings(recipe: dict[str, Any]) -> None:
    assert tuple(recipe["values"]) == COMMON == tuple(name for name in SEARCHABLE if name in COMMON)
    settings = AlgorithmSection.model_validate(recipe["values"]).model_dump()
    assert {name: settings[name] for name in COMMON} == recipe["values"]
    assert not any(isinstance(value, str) for name, value in recipe["values"].items() if name != "lr_scheduler")


def test_the_recipe_lies_inside_its_ranges(recipe: dict[str, Any]) -> None:
    assert tuple(recipe["ranges"]) == COMMON
    dimension: TypeAdapter[Any] = TypeAdapter(Dimension)
    space = Space({name: dimension.validate_python(given) for name, given in recipe["ranges"].items()})
    assert space.contains(recipe["values"])
    for name, corner in (("low", 0.0), ("high", 1.0)):
        legal = {n: given.get(name, recipe["values"][n]) for n, given in recipe["ranges"].items()}
        assert space.contains(AlgorithmSection.model_validate(legal).model_dump()), corner


def test_verls_values_are_the_published_ones() -> None:
    values = yaml.safe_load((FOLDER / "verl_grpo_gsm8k.yaml").read_text())["values"]
    assert list(values.values()) == [1e-6, "constant", 0.2, 1.0, 0.001, 5]
