"""Reads a study file. Every fault becomes one line with the file, the line, the key and the way out."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hpcjf.errors import HpcjfError, StudyError
from hpcjf.study import Categorical, IntegerRange, RealRange, Study

Key = tuple[str | int, ...]
Lines = Mapping[Key, int]
"""The line of every key and list entry of a file, counted from 1."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-6 as a number, as YAML 1.2 does, and dates as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> tuple[Any, Lines]:
    """The plain values of a YAML file, and the line of every key. Raises StudyError."""
    text = _read(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        # before construction, which writes merged keys (<<) into the nodes
        lines = {} if node is None else dict(_lines(node, (), set()))
        return (None if node is None else loader.construct_document(node)), lines
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        fix = next((way for said, way in _MENDS.items() if said in problem), "mend the YAML")
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise StudyError(f"not valid YAML: {problem}", where=where, fix=fix) from error
    except RecursionError as error:
        raise StudyError("nested too deeply, or in itself", where=str(path), fix="write it flat") from error
    # what PyYAML's own constructors let through, e.g. for `!!int abc`
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyError(f"a value cannot be read: {error}", where=str(path), fix="put it in quotes") from error


_MENDS = {
    "'\\t'": "indent with spaces, not tabs",
    "given twice": "keep one",
    "special characters": "write plain text: this file is binary or holds control characters",
    "could not determine a constructor": "leave the tag out",
}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise StudyError("no such file", where=str(path), fix="hpcjf init DIR writes one") from error
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text (byte {error.start})"
        raise StudyError(what, where=str(path), fix="name a text file, saved as UTF-8") from error
    except OSError as error:
        raise StudyError(
            f"cannot be read: {error.strerror}", where=str(path), fix="name a file that you can read"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise StudyError(f"cannot be read: {error}", where=repr(str(path)), fix="name a study file") from error


def read_study(path: Path) -> tuple[Study, Lines]:
    """A study file as a typed study, unresolved. Raises StudyError."""
    values, lines = read_yaml(path)
    if not isinstance(values, dict):
        what = "is empty" if values is None else "is no mapping of keys to values"
        raise StudyError(what, where=str(path), fix="hpcjf init DIR writes a working one")
    try:
        return Study.model_validate(values), lines
    except ValidationError as error:
        raise explain(error, path, lines, Study) from error


def line_of(path: Path, lines: Lines, key: Key) -> str:
    """``path:line`` of the longest part of ``key`` that stands in the file."""
    while key and key not in lines:
        key = key[:-1]
    return f"{path}:{lines.get(key, 1)}"


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


def expanded(name: str) -> Path:
    """A path of a study file, with its ~ and variables."""
    try:
        return Path(os.path.expandvars(name)).expanduser()
    except RuntimeError:  # ~nobody-of-that-name
        return Path(name)


def nearest(name: str, known: Sequence[str], otherwise: str = "known") -> str:
    """The way out of a misspelling."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listed = f"{otherwise}: {', '.join(known)}"
    return f"did you mean {near[0]}? ({listed})" if near else listed


def explain(error: ValidationError, path: Path, lines: Lines, model: type[BaseModel]) -> StudyError:
    """The first fault of a validation as one line; unknown keys first, as they explain the others."""
    faults: dict[Key, list[ErrorDetails]] = {}
    for fault in error.errors():
        faults.setdefault(_key(fault, lines), []).append(fault)
    # a list is too short because an entry is wrong: only the innermost keys count
    inner = [key for key in faults if not any(key == other[: len(key)] and key != other for other in faults)]
    key = min(inner, key=lambda key: faults[key][0]["type"] != "extra_forbidden")
    what, fix = _words(key, faults[key], model)
    more = f" (and {len(inner) - 1} more)" if len(inner) > 1 else ""
    return StudyError(f"{what}{more}", where=line_of(path, lines, key), fix=fix)


def _words(key: Key, faults: Sequence[ErrorDetails], model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong with ``key`` and how to mend it. A union has a fault for each of its members."""
    fault, name = faults[0], ".".join(map(str, key))
    match fault["type"]:
        case "extra_forbidden":
            return f"unknown key {name}", nearest(str(key[-1]), _fields(model, key[:-1]))
        case "missing":
            return f"key {name} is missing", "add it"
        case "union_tag_not_found":
            return f"key {name}.type is missing", "add one of real, integer, categorical"
        case "union_tag_invalid":
            kinds = ("real", "integer", "categorical")
            return f"{name}.type cannot be {_shown(fault['ctx']['tag'])}", nearest(str(fault["ctx"]["tag"]), kinds)
        case "value_error":
            message, _, fix = fault["msg"].removeprefix("Value error, ").partition("; ")
            return f"{name}: {message}" if name else message, fix or "change one of them"
        case "literal_error":
            known = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
            return f"{name} cannot be {_shown(fault['input'])}", nearest(str(fault["input"]), known, "one of")
    wanted = dict.fromkeys(_wanted(fault) for fault in faults)
    return f"{name or 'the file'} cannot be {_shown(fault['input'])}", f"give {' or '.join(wanted)}"


_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text, in quotes where it looks like a number",
    "tuple": "a list, [...]",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
    "invalid": "a key that is text",
}


def _wanted(fault: ErrorDetails) -> str:
    if fault["type"] == "string_pattern_mismatch":
        plain = fault["ctx"]["pattern"].startswith("^[^")
        return "one line without control characters" if plain else "1 to 64 letters, digits, '.', '_' or '-'"
    if fault["type"] == "too_short":
        return f"at least {fault['ctx']['min_length']} of them"
    bound = re.search(r"(greater|less) than.*", fault["msg"])
    return f"a number {bound[0]}" if bound else _WANTED.get(fault["type"].split("_")[0], fault["msg"])


def _shown(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_TAGS = ("real", "integer", "categorical", "bool", "int", "float", "str")


def _key(fault: ErrorDetails, lines: Lines) -> Key:
    """A pydantic location without the members of unions, which stand in it like keys."""
    key: Key = ()
    for part in fault["loc"]:
        named = isinstance(part, int) and (*key, str(part)) in lines
        inner: Key = (*key, str(part) if named else part)
        if inner in lines or not (part in _TAGS or str(part).startswith("dict[")):
            key = inner
    return key


def _fields(model: type[BaseModel], parents: Key) -> list[str]:
    """The keys that are known below ``parents``."""
    for part in parents:
        field = model.model_fields.get(str(part))
        if field is None:
            continue
        if part in ("space", "ranges"):
            dimensions = (RealRange, IntegerRange, Categorical)
            return list(dict.fromkeys(name for dimension in dimensions for name in dimension.model_fields))
        inner = (field.annotation, *getattr(field.annotation, "__args__", ()))
        model = next((a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)), model)
    return list(model.model_fields)


def _lines(node: yaml.Node, prefix: Key, seen: set[yaml.Node]) -> Iterator[tuple[Key, int]]:
    """What an alias stands for has its lines at the anchor. Raises a YAML error where a key is given twice."""
    if node in seen:
        return
    seen.add(node)
    if isinstance(node, yaml.MappingNode):
        known: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in known:
                raise yaml.MarkedYAMLError(problem=f"key {key.value} is given twice", problem_mark=key.start_mark)
            known.add(key.value)
            yield (*prefix, key.value), key.start_mark.line + 1
            yield from _lines(value, (*prefix, key.value), seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*prefix, index), value.start_mark.line + 1
            yield from _lines(value, (*prefix, index), seen)
