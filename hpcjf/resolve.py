"""Turns names of a study into what a job can use offline: recipe values, model folders, data paths, an executor."""

from __future__ import annotations

import importlib.resources
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from hpcjf.config import Key, explain, read_yaml
from hpcjf.errors import ModelError, StudyError, TaskError
from hpcjf.study import SEARCHABLE, AlgorithmSection, Categorical, Dimension, ModelSection, Section, Study

BUILTIN = "builtin:"
BUILTINS = ("tiny-xs", "tiny-s", "tiny-m")


class Recipe(Section):
    """A file under configs/recipes: the values to beat, and ranges around them."""

    model_class: str
    source: str
    values: dict[str, bool | int | float | str]
    ranges: dict[str, Dimension]


def load_recipe(name: str, base: Path) -> Recipe:
    """``name`` is a shipped recipe or a path relative to ``base``. Raises StudyError."""
    shipped = importlib.resources.files("hpcjf.configs") / "recipes"
    known = sorted(entry.name.removesuffix(".yaml") for entry in shipped.iterdir() if entry.name.endswith(".yaml"))
    path = Path(str(shipped / f"{name}.yaml")) if name in known else base / name
    if not path.is_file():
        raise StudyError(f"no recipe {name}", where="recipe", fix=f"a file, or one of {', '.join(known)}")
    values, lines = read_yaml(path)
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise explain(error, path, lines, Recipe) from error


def resolve_recipe(study: Study, path: Path, lines: Mapping[Key, int]) -> Study:
    """Recipe and space become plain values, checked against each other and the algorithm."""
    if isinstance(study.recipe, str):
        recipe = load_recipe(study.recipe, path.parent)
        values, ranges = dict(recipe.values), recipe.ranges
    else:
        values, ranges = dict(study.recipe), {}
    space = study.space if study.space is not None else ranges
    if not space:
        raise StudyError("space is empty", where=str(path), fix="name at least one hyperparameter to search")
    _known_names("space", space, path, lines)
    _known_names("recipe", values, path, lines)
    for name, dimension in space.items():
        value = values.setdefault(name, getattr(study.algorithm, name))
        _inside(name, value, dimension, f"{path}:{lines.get(('space', name), lines.get(('recipe',), 1))}")
    ordered = {name: space[name] for name in SEARCHABLE if name in space}
    searched = {name: value for name, value in values.items() if name in ordered}
    fixed = {name: value for name, value in values.items() if name not in ordered}
    given = study.algorithm.model_fields_set
    merged = study.algorithm.model_dump() | {name: value for name, value in fixed.items() if name not in given}
    try:
        algorithm = AlgorithmSection.model_validate(merged)
        AlgorithmSection.model_validate(merged | searched)
    except ValidationError as error:
        raise explain(error, path, lines, AlgorithmSection) from error
    return study.model_copy(update={"recipe": searched, "space": ordered, "algorithm": algorithm})


def _known_names(section: str, names: Mapping[str, object], path: Path, lines: Mapping[Key, int]) -> None:
    for name in names:
        if name not in SEARCHABLE:
            line = lines.get((section, name), lines.get((section,), 1))
            raise StudyError(
                f"{section}.{name}: the algorithm has no hyperparameter of this name",
                where=f"{path}:{line}",
                fix=f"known: {', '.join(SEARCHABLE)}",
            )


def _inside(name: str, value: object, dimension: Dimension, where: str) -> None:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(dimension, Categorical):
        inside = value in dimension.choices
    else:
        inside = numeric and dimension.low <= value <= dimension.high  # type: ignore[operator]
    if not inside:
        what = f"space.{name} does not contain the recipe's value {value}"
        raise StudyError(what, where=where, fix="widen it; the recipe is trial 0")
    if not isinstance(dimension, Categorical):
        for end in (dimension.low, dimension.high):
            _valid_setting(name, end, where)


def _valid_setting(name: str, value: float, where: str) -> None:
    try:
        AlgorithmSection.model_validate({name: value})
    except ValidationError as error:
        raise StudyError(f"space.{name}: {value} is impossible: {error.errors()[0]['msg']}", where=where) from error


def cache_folder() -> Path:
    """Where built-in models are kept: HPCJF_CACHE, else ~/.cache/hpcjf."""
    return Path(os.environ.get("HPCJF_CACHE") or Path.home() / ".cache" / "hpcjf").absolute()


def resolve_model(model: ModelSection, base: Path) -> ModelSection:
    """A model with a local folder and its parameter count; downloads a hub id. Raises ModelError."""
    where = f"models.{model.name}.path"
    if model.path.startswith(BUILTIN):
        folder = _builtin(model.path.removeprefix(BUILTIN), where)
    elif (base / model.path).is_dir():
        folder = (base / model.path).absolute()
    elif model.path.startswith((".", "/", "~")) or model.path.count("/") != 1:
        raise ModelError(f"no folder {model.path}", where=where, fix="a model folder, a hub id or builtin:tiny-s")
    else:
        folder = _download(model, where)
    parameters = model.parameters or _count_parameters(folder, where)
    return model.model_copy(update={"path": str(folder), "parameters": parameters})


def make_builtins(models: Sequence[ModelSection]) -> None:
    """Train the built-in models that are not cached yet, side by side; about a minute, once. Raises ModelError."""
    cache = cache_folder() / "models"
    names = {model.path.removeprefix(BUILTIN) for model in models if model.path.startswith(BUILTIN)}
    missing = sorted(name for name in names & set(BUILTINS) if not (cache / name / "config.json").is_file())
    if missing:
        print(f"making {' and '.join(missing)} once (about a minute), kept in {cache}", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-m", "hpcjf.training.tiny", name, "--cache", str(cache)] for name in missing]
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    for name, process in zip(missing, processes, strict=True):
        if process.wait() != 0:
            raise ModelError(f"{name} could not be made", where="models", fix="the reason stands above")


def _builtin(name: str, where: str) -> Path:
    if name not in BUILTINS:
        raise ModelError(f"no built-in model {name}", where=where, fix=f"one of {', '.join(BUILTINS)}")
    return cache_folder() / "models" / name


def _download(model: ModelSection, where: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model.path, revision=model.revision))
    except Exception as error:  # the hub's errors have no common root
        first = str(error).strip().splitlines()[0]
        raise ModelError(
            f"no folder and no hub model {model.path}: {first}", where=where, fix="check the path, or the network"
        ) from error


def _count_parameters(folder: Path, where: str) -> int:
    """From the safetensors headers, without loading a weight."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no config.json", where=where, fix="point at a transformers model folder")
    count = 0
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for extent in tensor["shape"]:
                    size *= extent
                count += size
    if not count:
        raise ModelError(f"{folder} holds no *.safetensors", where=where, fix="convert it, or set parameters")
    return count


def resolve_study(study: Study, path: Path, lines: Mapping[Key, int]) -> Study:
    """Everything but the executor. Raises UserError; may take a minute to train a built-in model once."""
    study = resolve_recipe(study, path, lines)
    base = path.parent.absolute()
    make_builtins(study.models)
    models = tuple(resolve_model(model, base) for model in study.models)
    sizes = [model.parameters or 0 for model in models]
    if sizes != sorted(sizes):
        raise StudyError(
            f"models must go from proxy to target, yet their sizes are {', '.join(f'{s:,}' for s in sizes)} parameters",
            where=f"{path}:{lines.get(('models',), 1)}",
        )
    task = study.task
    if task.path is not None:
        data = (base / Path(task.path).expanduser()).absolute()
        if not data.exists():
            where = f"{path}:{lines.get(('task', 'path'), 1)}"
            raise TaskError(f"no file or folder {data}", where=where, fix="mend task.path")
        task = task.model_copy(update={"path": str(data)})
    return study.model_copy(update={"models": models, "task": task})
