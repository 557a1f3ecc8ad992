"""What is searched, and what is to be beaten: space and recipe of a study as plain values, checked together."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from hpcjf.config import Lines, at_line, expanded, explain, line_of, nearest, read_yaml
from hpcjf.core.conditions import Conditions
from hpcjf.core.constraints import Constraint
from hpcjf.errors import StudyError
from hpcjf.study import (
    SEARCHABLE,
    AlgorithmSection,
    Categorical,
    Dimension,
    IntegerRange,
    ObjectiveName,
    RealRange,
    Section,
    Study,
)
from hpcjf.training.objectives.chosen import default_settings
from hpcjf.types import Scalar


class Recipe(Section):
    """A file under configs/recipes: the values to beat, and ranges around them."""

    model_class: str
    source: str
    values: dict[str, bool | int | float | str]
    ranges: dict[str, Dimension]


def resolve_space(study: Study, path: Path, lines: Lines) -> Study:
    """The recipe's values and the space, with all that the search is told about them. Raises StudyError."""
    study = _resolve_recipe(study, path, lines)
    _check_configurations(study, path, lines)
    _check_constraints(study, path, lines)
    return study


def _resolve_recipe(study: Study, path: Path, lines: Lines) -> Study:
    """Recipe and space become plain values, checked against each other and the algorithm."""
    given = study.algorithm.model_fields_set & set(SEARCHABLE)
    if isinstance(study.recipe, str):
        recipe = _load_recipe(study.recipe, path, lines)
        values, ranges = _for_objective(study, recipe)
    else:
        values, ranges = dict(study.recipe), {}
        _known_names(("recipe",), values, path, lines)
    if study.space is None:
        space = {name: dimension for name, dimension in ranges.items() if name not in given}
    else:
        space = study.space
        _known_names(("space",), space, path, lines)
        _not_fixed(space, given, path, lines)
    if not space:
        raise StudyError(
            "space is empty",
            where=line_of(path, lines, ("space",)),
            fix=f"name at least one hyperparameter to search, of {', '.join(SEARCHABLE)}",
        )
    defaults = default_settings(_objective(study, values))
    for name, dimension in space.items():
        at = line_of(path, lines, ("space", name) if study.space is not None else ("recipe",))
        _possible(name, dimension, at)
        for other, wanted in (dimension.when or {}).items():
            if other in AlgorithmSection.model_fields and other not in space:
                _legal("algorithm", other, wanted, at)
        known = values.get(name, _setting(study, name, defaults))
        if known is None and name == "base" and isinstance(dimension, Categorical):
            known = dimension.choices[0]  # no recipe can know the study's checkpoints
        if known is not None:
            _inside(name, values.setdefault(name, known), dimension, at)
    ordered = {name: space[name] for name in SEARCHABLE if name in space}
    searched = {name: _typed(value, ordered[name]) for name, value in values.items() if name in ordered}
    # a dimension that is inactive in a configuration is trained with the recipe's value, or the objective's own
    fixed = {n: v for n, v in values.items() if (n not in ordered or _kept(ordered[n])) and n not in given}
    algorithm = study.algorithm.model_dump() | fixed
    try:
        AlgorithmSection.model_validate(algorithm | searched)
        merged = AlgorithmSection.model_validate(algorithm)
    except ValidationError as error:
        below = {key[1:]: line for key, line in lines.items() if key[0] == "recipe" and len(key) > 1}
        raise explain(error, path, below, AlgorithmSection) from error
    with at_line(path, lines):
        conditions = Conditions(ordered, merged.model_dump())
    active = conditions.prune(searched)
    for name in conditions.active(searched):
        if name not in active:
            what = f"space.{name}: neither the recipe nor its objective has a value for it"
            raise StudyError(what, where=line_of(path, lines, ("space", name)), fix=f"give recipe.{name}")
    return study.model_copy(update={"recipe": active, "space": ordered, "algorithm": merged})


def _for_objective(study: Study, recipe: Recipe) -> tuple[dict[str, bool | int | float | str], dict[str, Dimension]]:
    """Values and ranges of a file, of which a study with another objective takes what every objective has."""
    fields, given = AlgorithmSection.model_fields, study.algorithm.model_fields_set
    same = study.algorithm.objective == recipe.values.get("objective", fields["objective"].default)
    lent = {name for name in SEARCHABLE if "objective" not in given or same or fields[name].default is not None}
    values = {name: value for name, value in recipe.values.items() if name in lent}
    return values, {name: dimension for name, dimension in recipe.ranges.items() if name in lent}


def _objective(study: Study, values: Mapping[str, Scalar]) -> str:
    """That of the recipe, unless ``algorithm`` names one; an unknown one is told later."""
    mine = study.algorithm.objective
    named = mine if "objective" in study.algorithm.model_fields_set else values.get("objective", mine)
    return str(named) if named in get_args(ObjectiveName) else mine


def _setting(study: Study, name: str, defaults: Mapping[str, Scalar]) -> Scalar | None:
    value: Scalar | None = getattr(study.algorithm, name)
    return defaults.get(name) if value is None else value


def _kept(dimension: Dimension) -> bool:
    """Whether the recipe's value holds where the dimension is inactive: not where the objective decides, since
    another objective has another default."""
    return bool(dimension.when) and "objective" not in (dimension.when or {})


def _load_recipe(name: str, study: Path, lines: Lines) -> Recipe:
    """``name`` is a shipped recipe or a path beside the study. Raises StudyError."""
    shipped = importlib.resources.files("hpcjf.configs") / "recipes"
    known = sorted(entry.name.removesuffix(".yaml") for entry in shipped.iterdir() if entry.name.endswith(".yaml"))
    path = Path(str(shipped / f"{name}.yaml")) if name in known else study.parent / expanded(name)
    if not os.path.isfile(path):
        fix = f"name a file, or one that comes along ({nearest(name, known)})"
        raise StudyError(f"no recipe {name}", where=line_of(study, lines, ("recipe",)), fix=fix)
    values, places = read_yaml(path)
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise explain(error, path, places, Recipe) from error
    _known_names(("values",), recipe.values, path, places)
    _known_names(("ranges",), recipe.ranges, path, places)
    return recipe


def _known_names(section: tuple[str], names: Iterable[str], path: Path, lines: Lines) -> None:
    for name in names:
        if name not in SEARCHABLE:
            raise StudyError(
                f"{section[0]}.{name}: the algorithm has no hyperparameter of this name",
                where=line_of(path, lines, (*section, name)),
                fix=nearest(name, SEARCHABLE),
            )


def _not_fixed(space: Iterable[str], given: Set[str], path: Path, lines: Lines) -> None:
    for name in space:
        if name in given:
            raise StudyError(
                f"{name} is searched here and fixed under algorithm",
                where=line_of(path, lines, ("space", name)),
                fix="keep one of the two",
            )


def _possible(name: str, dimension: Dimension, where: str) -> None:
    """Every value of the dimension must be one that training takes."""
    if isinstance(dimension, RealRange) and AlgorithmSection.model_fields[name].annotation is int:
        raise StudyError(f"space.{name} takes whole numbers only", where=where, fix="write type: integer")
    values = dimension.choices if isinstance(dimension, Categorical) else (dimension.low, dimension.high)
    _legal("space", name, values, where)


def _legal(section: str, name: str, values: Iterable[object], where: str) -> None:
    for value in values:
        try:
            AlgorithmSection.model_validate({name: value})
        except ValidationError as error:
            said = explain(error, Path(), {}, AlgorithmSection)
            raise StudyError(f"{section}.{said.what}", where=where, fix=said.fix) from error


def _inside(name: str, value: object, dimension: Dimension, where: str) -> None:
    if not _contains(dimension, value):
        what = f"space.{name} does not contain the recipe's value {value}"
        raise StudyError(what, where=where, fix="widen it, or change the recipe, which is trial 0")


def _typed(value: bool | int | float | str, dimension: Dimension) -> bool | int | float | str:
    """As the search writes it: 1 and 1.0 would be two configurations."""
    if isinstance(dimension, Categorical):
        return value
    return float(value) if isinstance(dimension, RealRange) else int(value)


def _contains(dimension: Dimension, value: object) -> bool:
    if isinstance(dimension, Categorical):
        return any(value == choice and type(value) is type(choice) for choice in dimension.choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = value == int(value) if isinstance(dimension, IntegerRange) else True
    return whole and dimension.low <= value <= dimension.high


def _check_configurations(study: Study, path: Path, lines: Lines) -> None:
    """Those of ``search.configurations`` must lie in the resolved space."""
    space, recipe = study.space or {}, study.recipe
    assert not isinstance(recipe, str)
    conditions = Conditions(space, study.algorithm.model_dump())
    for index, config in enumerate(study.search.configurations):
        for name, value in config.items():
            key = ("search", "configurations", index, name)
            shown, at = ".".join(map(str, key)), line_of(path, lines, key)
            if name not in space:
                raise StudyError(f"{shown}: the space has no such dimension", where=at, fix=nearest(name, tuple(space)))
            if not _contains(space[name], value):
                what = f"{shown}: space.{name} does not contain {value}"
                raise StudyError(what, where=at, fix="widen the space, or give another value")
        whole = {**study.algorithm.model_dump(exclude_none=True), **recipe, **config}
        lacking = [name for name in conditions.active(whole) if name not in whole]
        if lacking:
            what = f"search.configurations.{index} has no value for {lacking[0]}, and neither has the recipe"
            raise StudyError(what, where=line_of(path, lines, ("search", "configurations", index)), fix="add it")


def _check_constraints(study: Study, path: Path, lines: Lines) -> None:
    """They must leave something of the resolved space, and with it the recipe and every given configuration."""
    if not study.search.constraints:
        return
    from hpcjf.core.feasible import DRAWS, shares_left  # numpy

    assert study.space is not None
    assert not isinstance(study.recipe, str)
    fixed = study.algorithm.model_dump()
    given = [("the recipe", study.recipe)]
    given += [(f"search.configurations.{i}", config) for i, config in enumerate(study.search.configurations)]
    for index, share in enumerate(shares_left(study.space, study.search.constraints, fixed)):
        text = study.search.constraints[index]
        constraint, at = Constraint(text, fixed), line_of(path, lines, ("search", "constraints", index))
        null = [name for name in constraint.names if fixed[name] is None and name not in study.space]
        if null:
            what = f"{text!r} reads {null[0]}, which is left to the objective"
            raise StudyError(what, where=at, fix=f"set algorithm.{null[0]}, or search it")
        if not share:
            what = f"none of {DRAWS:,} random configurations meets {text!r}" + (" and those above it" if index else "")
            raise StudyError(what, where=at, fix="loosen it, or widen the space")
        for who, config in given:
            values = {**fixed, **study.recipe, **config}
            if not constraint.holds(values):
                shown = ", ".join(f"{name} {values[name]}" for name in constraint.names)
                raise StudyError(f"{who} breaks {text!r} with {shown}", where=at, fix="loosen it, or change the value")
