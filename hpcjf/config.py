"""Reads a study file. Every fault becomes one line with the file, the line, the key and the way out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from hpcjf.errors import StudyError
from hpcjf.study import Study

Key = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-6 as a number, as YAML 1.2 does."""


_Loader.yaml_implicit_resolvers = {k: list(v) for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> tuple[Any, dict[Key, int]]:
    """The plain values of a YAML file, and the line of every key. Raises StudyError."""
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise StudyError("no such file", where=str(path), fix="hpcjf init DIR writes one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"cannot be read: {error}", where=str(path)) from error
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = dict(_lines(node, ())) if node is not None else {}
        return (loader.construct_document(node) if node is not None else None), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise StudyError(f"not valid YAML: {getattr(error, 'problem', error)}", where=where) from error
    except _DuplicateKeyError as error:
        raise StudyError(f"key {error.key} is given twice", where=f"{path}:{error.line}", fix="keep one") from error


def read_study(path: Path) -> tuple[Study, dict[Key, int]]:
    """A study file as a typed study, unresolved. Raises StudyError."""
    values, lines = read_yaml(path)
    if not isinstance(values, dict):
        raise StudyError("is empty or no mapping", where=str(path), fix="hpcjf init DIR writes a working one")
    try:
        return Study.model_validate(values), lines
    except ValidationError as error:
        raise explain(error, path, lines, Study) from error


def explain(error: ValidationError, path: Path, lines: Mapping[Key, int], model: type[BaseModel]) -> StudyError:
    """The first fault of a validation as one line; unknown keys first, as they explain the others."""
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    fault = faults[0]
    located = _locate(fault["loc"], lines)
    where = f"{path}:{lines[located]}" if located in lines else str(path)
    key = ".".join(str(part) for part in located)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), _fields(model, located[:-1]), n=1, cutoff=0.5)
        fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(_fields(model, located[:-1]))}"
        return StudyError(f"unknown key {key}{more}", where=where, fix=fix)
    if fault["type"] == "missing":
        missing = ".".join(str(part) for part in fault["loc"])
        return StudyError(f"key {missing} is missing{more}", where=where, fix="add it")
    message = fault["msg"].removeprefix("Value error, ")
    return StudyError(f"{key}: {message}{more}" if key else f"{message}{more}", where=where)


class _DuplicateKeyError(Exception):
    def __init__(self, key: str, line: int) -> None:
        self.key, self.line = key, line


def _lines(node: yaml.Node, prefix: Key) -> Iterator[tuple[Key, int]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise _DuplicateKeyError(key.value, key.start_mark.line + 1)
            seen.add(key.value)
            yield (*prefix, key.value), key.start_mark.line + 1
            yield from _lines(value, (*prefix, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*prefix, index), value.start_mark.line + 1
            yield from _lines(value, (*prefix, index))


def _locate(loc: Key, lines: Mapping[Key, int]) -> Key:
    """The longest part of a pydantic location that stands in the file; tags of unions fall out."""
    found: Key = ()
    for part in loc:
        if (*found, part) in lines:
            found = (*found, part)
    return found


def _fields(model: type[BaseModel], parents: Key) -> list[str]:
    """The keys that are known below ``parents``."""
    for part in parents:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        models = [a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)]
        if not models:
            return ["type", "low", "high", "log", "choices"]
        model = models[0]
    return list(model.model_fields)
