"""Turns names of a study into what a job can use offline: recipe values, model folders, data paths."""

from __future__ import annotations

import importlib.resources
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from hpcjf.config import Lines, explain, line_of, nearest, read_yaml
from hpcjf.core.conditions import Conditions
from hpcjf.core.constraints import Constraint
from hpcjf.core.slurm_directives import omitted
from hpcjf.errors import HpcjfError, ModelError, PermanentClusterError, StudyError, TaskError
from hpcjf.study import (
    SEARCHABLE,
    AlgorithmSection,
    Categorical,
    Dimension,
    IntegerRange,
    ModelSection,
    RealRange,
    Section,
    Study,
    TaskSection,
)
from hpcjf.tasks import needs_embedder
from hpcjf.training.tiny import SHAPES, default_cache

BUILTIN = "builtin:"


class Recipe(Section):
    """A file under configs/recipes: the values to beat, and ranges around them."""

    model_class: str
    source: str
    values: dict[str, bool | int | float | str]
    ranges: dict[str, Dimension]


@contextmanager
def at_line(path: Path, lines: Lines) -> Iterator[None]:
    """Errors that name a key of the study gain the file and the line."""
    try:
        yield
    except HpcjfError as error:
        key = tuple(error.where.split("."))
        if key[0] not in Study.model_fields:
            raise
        what = f"{error.where}: {error.what}"
        raise type(error)(what, where=line_of(path, lines, key), fix=error.fix) from error


def resolve_study(study: Study, path: Path, lines: Lines) -> Study:
    """Everything but the executor. Raises UserError; may take a minute to train a built-in model once."""
    study = _resolve_recipe(study, path, lines)
    _check_configurations(study, path, lines)
    _check_constraints(study, path, lines)
    with at_line(path, lines):
        task = _task(study.task, path.parent.absolute())
    places = [line_of(path, lines, ("models", index, "path")) for index in range(len(study.models))]
    folders = [_folder(model, path.parent.absolute(), at) for model, at in zip(study.models, places, strict=True)]
    for index, model in enumerate(study.models):
        own = ("models", index, "resources")
        _check_directives(study, model, line_of(path, lines, own if own in lines else ("cluster",)))
    _make_builtins(folders)
    models = tuple(
        model.model_copy(update={"path": str(folder), "parameters": _parameters(model, folder, at)})
        for model, folder, at in zip(study.models, folders, places, strict=True)
    )
    sizes = [model.parameters or 0 for model in models]
    if sizes != sorted(sizes):
        raise StudyError(
            f"models must go from proxy to target, yet they have {', '.join(f'{s:,}' for s in sizes)} parameters",
            where=line_of(path, lines, ("models",)),
            fix="put the smaller one first",
        )
    earlier = study.search.warm_start
    search = study.search.model_copy(
        update={"warm_start": None if earlier is None else str((path.parent / _expanded(earlier)).absolute())}
    )
    return study.model_copy(update={"models": models, "task": task, "search": search})


def _resolve_recipe(study: Study, path: Path, lines: Lines) -> Study:
    """Recipe and space become plain values, checked against each other and the algorithm."""
    given = study.algorithm.model_fields_set & set(SEARCHABLE)
    if isinstance(study.recipe, str):
        recipe = _load_recipe(study.recipe, path, lines)
        values, ranges = dict(recipe.values), recipe.ranges
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
    for name, dimension in space.items():
        at = line_of(path, lines, ("space", name) if study.space is not None else ("recipe",))
        _possible(name, dimension, at)
        for other, wanted in (dimension.when or {}).items():
            if other in AlgorithmSection.model_fields and other not in space:
                _legal("algorithm", other, wanted, at)
        _inside(name, values.setdefault(name, getattr(study.algorithm, name)), dimension, at)
    ordered = {name: space[name] for name in SEARCHABLE if name in space}
    searched = {name: _typed(value, ordered[name]) for name, value in values.items() if name in ordered}
    # a dimension that is inactive in a configuration is trained with the recipe's value
    fixed = {n: v for n, v in values.items() if (n not in ordered or ordered[n].when) and n not in given}
    algorithm = study.algorithm.model_dump() | fixed
    try:
        AlgorithmSection.model_validate(algorithm | searched)
        merged = AlgorithmSection.model_validate(algorithm)
    except ValidationError as error:
        below = {key[1:]: line for key, line in lines.items() if key[0] == "recipe" and len(key) > 1}
        raise explain(error, path, below, AlgorithmSection) from error
    with at_line(path, lines):
        active = Conditions(ordered, merged.model_dump()).prune(searched)
    return study.model_copy(update={"recipe": active, "space": ordered, "algorithm": merged})


def _load_recipe(name: str, study: Path, lines: Lines) -> Recipe:
    """``name`` is a shipped recipe or a path beside the study. Raises StudyError."""
    shipped = importlib.resources.files("hpcjf.configs") / "recipes"
    known = sorted(entry.name.removesuffix(".yaml") for entry in shipped.iterdir() if entry.name.endswith(".yaml"))
    path = Path(str(shipped / f"{name}.yaml")) if name in known else study.parent / _expanded(name)
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
    space = study.space or {}
    for index, config in enumerate(study.search.configurations):
        for name, value in config.items():
            key = ("search", "configurations", index, name)
            shown, at = ".".join(map(str, key)), line_of(path, lines, key)
            if name not in space:
                raise StudyError(f"{shown}: the space has no such dimension", where=at, fix=nearest(name, tuple(space)))
            if not _contains(space[name], value):
                what = f"{shown}: space.{name} does not contain {value}"
                raise StudyError(what, where=at, fix="widen the space, or give another value")


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
        if not share:
            what = f"none of {DRAWS:,} random configurations meets {text!r}" + (" and those above it" if index else "")
            raise StudyError(what, where=at, fix="loosen it, or widen the space")
        for who, config in given:
            values = {**fixed, **study.recipe, **config}
            if not constraint.holds(values):
                shown = ", ".join(f"{name} {values[name]}" for name in constraint.names)
                raise StudyError(f"{who} breaks {text!r} with {shown}", where=at, fix="loosen it, or change the value")


def _expanded(name: str) -> Path:
    try:
        return Path(os.path.expandvars(name)).expanduser()
    except RuntimeError:  # ~nobody-of-that-name
        return Path(name)


def _task(task: TaskSection, base: Path) -> TaskSection:
    """Rows, and the embedder of a task that needs one, as local paths: jobs run without the hub."""
    found: dict[str, str | None] = {"path": _data_path(task.path, base)}
    if needs_embedder(task):
        folder = (base / _expanded(task.embedder)).absolute()
        local = os.path.isfile(folder / "config.json")
        found["embedder"] = str(folder if local else _download("embedder", task.embedder, None, "task.embedder"))
    return task.model_copy(update=found)


def _data_path(name: str | None, base: Path) -> str | None:
    if name is None:
        return None
    path = (base / _expanded(name)).absolute()
    if not os.path.exists(path):
        raise TaskError(f"no file or folder {path}", where="task.path", fix="name the data, from the study's folder on")
    return str(path)


def _check_directives(study: Study, model: ModelSection, where: str) -> None:
    """Also where no Slurm is: the file may travel to a cluster."""
    try:
        omitted(model.resources.over(study.cluster))
    except PermanentClusterError as error:
        raise StudyError(f"model {model.name}: {error.what}", where=where, fix=error.fix) from error


def cache_folder() -> Path:
    """Where built-in models are kept: HPCJF_CACHE, else ~/.cache/hpcjf."""
    return default_cache().parent.absolute()


def _folder(model: ModelSection, base: Path, where: str) -> Path:
    """The local folder of a model; downloads a hub id. That of a built-in one may have to be made yet."""
    if model.path.startswith(BUILTIN):
        name = model.path.removeprefix(BUILTIN)
        if name not in SHAPES:
            raise ModelError(f"no built-in model {name}", where=where, fix=nearest(name, tuple(SHAPES)))
        return cache_folder() / "models" / name
    folder = (base / _expanded(model.path)).absolute()
    if os.path.isdir(folder):
        if not os.path.isfile(folder / "config.json"):
            what = f"model {model.name}: {folder} holds no config.json"
            raise ModelError(what, where=where, fix="name a transformers model folder")
        return folder
    # models/absent is a path where models/ is a folder, and else an id of the hub
    if model.path.startswith((".", "/", "~", "$")) or model.path.count("/") != 1 or os.path.isdir(folder.parent):
        what = f"model {model.name}: no folder {folder}"
        raise ModelError(what, where=where, fix="name a model folder, a hub id or builtin:tiny-s")
    return _download(f"model {model.name}", model.path, model.revision, where)


def _download(role: str, hub_id: str, revision: str | None, where: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, revision=revision))
    except Exception as error:  # the hub's errors have no common root
        said = [*str(error).strip().splitlines(), type(error).__name__][0]
        what = f"{role}: no folder and no hub model {hub_id}: {said}"
        raise ModelError(what, where=where, fix="check the path, or the network") from error


def _make_builtins(folders: Sequence[Path]) -> None:
    """Train the built-in models that are not cached yet, side by side; about a minute, once. Raises ModelError."""
    cache = cache_folder() / "models"
    missing = sorted({f.name for f in folders if f.parent == cache and not (f / "config.json").is_file()})
    if missing:
        print(f"making {' and '.join(missing)} once (about a minute), kept in {cache}", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-m", "hpcjf.training.tiny", name, "--cache", str(cache)] for name in missing]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate()[1].strip().splitlines() for process in processes]
    for name, process, lines in zip(missing, processes, said, strict=True):
        if process.returncode != 0:
            what = f"{name} could not be made: {lines[-1] if lines else 'no reason was given'}"
            raise ModelError(what, where=str(cache), fix="set HPCJF_CACHE to a folder that you can write")


def _parameters(model: ModelSection, folder: Path, where: str) -> int:
    """As the study says, or from the safetensors headers, without loading a weight."""
    if model.parameters is not None:
        return model.parameters
    count = sum(_count(file, where) for file in sorted(folder.glob("*.safetensors")))
    if not count:
        what = f"model {model.name}: {folder} holds no *.safetensors"
        raise ModelError(what, where=where, fix="convert its weights, or set parameters")
    return count


def _count(file: Path, where: str) -> int:
    """Numbers in one safetensors file: 8 bytes with the header's length, a JSON header, the data."""
    again = "copy or download it again"
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > _LARGEST_HEADER:
                raise ModelError(f"{file} is no safetensors file", where=where, fix=again)
            tensors = json.loads(stream.read(length).decode())
            shapes = [tensor["shape"] for name, tensor in tensors.items() if name != "__metadata__"]
            ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
            if 8 + length + max(ends, default=0) > os.fstat(stream.fileno()).st_size:
                raise ModelError(f"{file} is cut short", where=where, fix=again)
            return sum(math.prod(shape) for shape in shapes)
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}", where=where, fix="mend its permissions") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ModelError(f"{file} has a damaged header", where=where, fix=again) from error


_LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""
