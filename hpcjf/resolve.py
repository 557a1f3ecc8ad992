"""Turns names of a study into what a job can use offline: recipe values, model folders, data paths."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcjf.config import Lines, at_line, expanded, line_of, nearest
from hpcjf.core.slurm_directives import omitted
from hpcjf.errors import ModelError, PermanentClusterError, StudyError, TaskError
from hpcjf.recipes import resolve_space
from hpcjf.study import EvaluationSection, ModelSection, Study, TaskSection
from hpcjf.tasks import needs_embedder
from hpcjf.tasks.choices import read_questions
from hpcjf.training.tiny import SHAPES, default_cache

BUILTIN = "builtin:"


def resolve_study(study: Study, path: Path, lines: Lines) -> Study:
    """Everything but the executor. Raises UserError; may take a minute to train a built-in model once."""
    study = resolve_space(study, path, lines)
    with at_line(path, lines):
        task = _task(study.task, path.parent.absolute())
    if study.algorithm.sampler == "vllm" and importlib.util.find_spec("vllm") is None:
        where = line_of(path, lines, ("algorithm", "sampler"))
        raise StudyError("vllm is not installed", where=where, fix="pip install 'hpcjf[vllm]', or leave sampler out")
    folders = _folders(study, path, lines)
    for index, model in enumerate(study.models):
        own = ("models", index, "resources")
        _check_directives(study, model, line_of(path, lines, own if own in lines else ("cluster",)))
    _make_builtins(folders)
    study = _sized(study, folders, path, lines)
    earlier = study.search.warm_start
    search = study.search.model_copy(
        update={"warm_start": None if earlier is None else str((path.parent / expanded(earlier)).absolute())}
    )
    return study.model_copy(update={"task": task, "search": search, "evaluation": _evaluation(study, path)})


def resolve_sizes(study: Study, path: Path, lines: Lines) -> Study:
    """What a plan needs: recipe, space and the models' sizes. Nothing is downloaded or made. Raises UserError."""
    study = resolve_space(study, path, lines)
    return _sized(study, _folders(study, path, lines, local=True), path, lines)


def _folders(study: Study, path: Path, lines: Lines, *, local: bool = False) -> list[Path]:
    places = [line_of(path, lines, ("models", index, "path")) for index in range(len(study.models))]
    return [
        _folder(model, path.parent.absolute(), at, local=local) for model, at in zip(study.models, places, strict=True)
    ]


def _sized(study: Study, folders: Sequence[Path], path: Path, lines: Lines) -> Study:
    """With the models' folders and parameter counts. Raises ModelError, and StudyError where the order is wrong."""
    models = tuple(
        model.model_copy(
            update={
                "path": str(folder),
                "parameters": _parameters(model, folder, line_of(path, lines, ("models", index, "path"))),
            }
        )
        for index, (model, folder) in enumerate(zip(study.models, folders, strict=True))
    )
    sizes = [model.parameters or 0 for model in models]
    if sizes != sorted(sizes):
        raise StudyError(
            f"models must go from proxy to target, yet they have {', '.join(f'{s:,}' for s in sizes)} parameters",
            where=line_of(path, lines, ("models",)),
            fix="put the smaller one first",
        )
    return study.model_copy(update={"models": models})


def _task(task: TaskSection, base: Path) -> TaskSection:
    """Rows, and the embedder of a task that needs one, as local paths: jobs run without the hub."""
    found: dict[str, str | None] = {"path": _data_path(task.path, base)}
    if needs_embedder(task):
        folder = (base / expanded(task.embedder)).absolute()
        local = os.path.isfile(folder / "config.json")
        found["embedder"] = str(folder if local else _download("embedder", task.embedder, None, "task.embedder"))
    return task.model_copy(update=found)


def _evaluation(study: Study, path: Path) -> EvaluationSection:
    """With the questions' file as a whole path. Raises TaskError where it cannot be used."""
    if study.evaluation.choices is None:
        return study.evaluation
    file = (path.parent / expanded(study.evaluation.choices)).absolute()
    read_questions(file)
    return study.evaluation.model_copy(update={"choices": str(file)})


def _data_path(name: str | None, base: Path) -> str | None:
    if name is None:
        return None
    path = (base / expanded(name)).absolute()
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


def _folder(model: ModelSection, base: Path, where: str, *, local: bool) -> Path:
    """The local folder of a model; downloads a hub id unless ``local``. A built-in one may have to be made yet."""
    if model.path.startswith(BUILTIN):
        name = model.path.removeprefix(BUILTIN)
        if name not in SHAPES:
            raise ModelError(f"no built-in model {name}", where=where, fix=nearest(name, tuple(SHAPES)))
        return cache_folder() / "models" / name
    folder = (base / expanded(model.path)).absolute()
    if os.path.isdir(folder):
        if not os.path.isfile(folder / "config.json"):
            what = f"model {model.name}: {folder} holds no config.json"
            raise ModelError(what, where=where, fix="name a transformers model folder")
        return folder
    # models/absent is a path where models/ is a folder, and else an id of the hub
    if model.path.startswith((".", "/", "~", "$")) or model.path.count("/") != 1 or os.path.isdir(folder.parent):
        what = f"model {model.name}: no folder {folder}"
        raise ModelError(what, where=where, fix="name a model folder, a hub id or builtin:tiny-s")
    if local and model.parameters is not None:
        return folder
    return _download(f"model {model.name}", model.path, model.revision, where, local=local)


def _download(role: str, hub_id: str, revision: str | None, where: str, *, local: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=local))
    except Exception as error:  # the hub's errors have no common root
        if local:
            what = f"{role}: its size is not known before {hub_id} is downloaded"
            raise ModelError(what, where=where, fix="set parameters, or let hpcjf check download it") from error
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
    if model.path.startswith(BUILTIN) and not folder.is_dir():
        return SHAPES[folder.name].parameters
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
