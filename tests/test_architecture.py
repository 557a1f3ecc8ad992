"""The house rules that a reader relies on: who imports whom, what is pure, how large things are, what is forbidden.

Every check is a function from parsed sources to a list of faults, and is shown to find a planted fault.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Modules = Mapping[str, ast.Module]

LAYERS = (
    {"errors", "types"},
    {"study", "core"},
    {"store", "cluster", "tasks"},
    {"training"},
    {"worker", "controller", "analysis", "adapters"},
    {"config", "recipes", "resolve", "preflight", "planned", "screen", "watching", "cli"},
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
MEETING = (0, 1, 5)
"""Layers whose parts may import each other; elsewhere neighbours do not know each other."""

HEAVY = ("torch", "transformers", "peft", "skopt", "sklearn")
ML = ("torch", "transformers", "peft")
IMPURE = {"os", "pathlib", "time", "datetime", "io", "shutil", "tempfile", "subprocess", "socket", "random", "secrets"}
IMPURE |= {"uuid", "h5py", "filelock", "submitit", *ML}
"""Files, clock, environment and hidden randomness."""
LIGHT_CORE = ("stopping", "lifecycle", "fidelity", "slurm_text")
"""Modules of core that the controller imports."""
VOCABULARIES = {"hpcjf.errors": "the error family", "hpcjf.study": "a model for every section of a study file"}
"""The two modules that are lists of names, free of the limit on public names."""


def read(root: Path = ROOT) -> dict[str, str]:
    names = {path: path.relative_to(root).with_suffix("").parts for path in (root / "hpcjf").rglob("*.py")}
    return {".".join(p for p in parts if p != "__init__"): path.read_text() for path, parts in names.items()}


SOURCES = read()
MODULES = {name: ast.parse(text) for name, text in SOURCES.items()}


def imports(module: ast.Module) -> Iterator[str]:
    """Every imported name in full, wherever it stands: ``from a import b`` gives ``a.b``. All imports are absolute."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            yield from (f"{dots}{node.module or ''}.{alias.name}" for alias in node.names)


def own_imports(modules: Modules, name: str) -> set[str]:
    """The modules of the project that ``name`` imports."""
    found = set()
    for target in imports(modules[name]):
        while target not in modules and "." in target:
            target = target.rpartition(".")[0]
        if target in modules and target != name:
            found.add(target)
    return found


def part(name: str) -> str:
    return [*name.split("."), ""][1]


def layer_faults(modules: Modules) -> list[str]:
    faults = [f"{name} is in no layer" for name in modules if part(name) and part(name) not in LEVEL]
    for name in modules:
        for target in own_imports(modules, name):
            mine, theirs = LEVEL.get(part(name), -1), LEVEL.get(part(target), -1)
            meets = part(name) == part(target) or mine in MEETING
            if theirs > mine or (theirs == mine and not meets):
                faults.append(f"{name} imports {target}")
    return faults


def relative_faults(modules: Modules) -> list[str]:
    return [f"{n} imports {t}" for n, module in modules.items() for t in imports(module) if t.startswith(".")]


def cycle_faults(modules: Modules) -> list[str]:
    try:
        TopologicalSorter({name: own_imports(modules, name) for name in modules}).prepare()
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def purity_faults(modules: Modules) -> list[str]:
    faults = []
    for name, module in modules.items():
        if LEVEL.get(part(name), 0) > 1:
            continue
        faults += [f"{name} imports {t}" for t in imports(module) if t.split(".")[0] in IMPURE]
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "print", "input", "breakpoint"):
                faults.append(f"{name}:{node.lineno} calls {ast.unparse(node.func)}")
            if isinstance(node, ast.Call) and ast.unparse(node).endswith("default_rng()"):
                faults.append(f"{name}:{node.lineno} makes a generator without a seed")
    return faults


def heavy_faults(modules: Modules) -> list[str]:
    faults = []
    for name, module in modules.items():
        forbidden = set() if part(name) in ("training", "adapters") else set(ML)
        if name in {f"hpcjf.core.{light}" for light in LIGHT_CORE}:
            forbidden |= {"skopt", "sklearn", "scipy"}
        faults += [f"{name} imports {t}" for t in imports(module) if t.split(".")[0] in forbidden]
    return faults


def functions(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and lines of every function and method, from ``def`` to its last line."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def public_names(module: ast.Module) -> list[str]:
    """Functions and classes without an underscore. Commands of a command line are called by nobody and don't count."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = [node for node in module.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return [node.name for node in nodes if ".command(" not in "".join(map(ast.unparse, node.decorator_list))]


def size_faults(sources: Mapping[str, str]) -> list[str]:
    faults = []
    for name, text in sources.items():
        module = ast.parse(text)
        names = public_names(module)
        if len(text.splitlines()) > 400:
            faults.append(f"{name} has {len(text.splitlines())} lines, at most 400")
        if len(names) > 8 and name not in VOCABULARIES:
            faults.append(f"{name} has {len(names)} public names, at most 8: {', '.join(names)}")
        faults += [f"{name}.{f} has {lines} lines, at most 80" for f, lines in functions(module) if lines > 80]
    return faults


def median_faults(sources: Mapping[str, str]) -> list[str]:
    files = [len(text.splitlines()) for text in sources.values() if text] or [0]
    lengths = [lines for text in sources.values() for _, lines in functions(ast.parse(text))] or [0]
    faults = [f"median file: {statistics.median(files)} lines"] if statistics.median(files) > 150 else []
    if statistics.median(lengths) > 10:
        faults.append(f"median function: {statistics.median(lengths)} lines")
    if sum(lines <= 40 for lines in lengths) < 0.9 * len(lengths):
        faults.append("fewer than 90 % of the functions have 40 lines or less")
    return faults


def switched_off_faults(sources: Mapping[str, str]) -> list[str]:
    """Unfinished places, security rules that are silenced, and torch.load that would unpickle."""
    unfinished = re.compile(r"\b(?:TODO|FIXME|NotImplementedError)\b")
    silenced = re.compile(r"noqa(?!:)|noqa:.*\bS(?:102|301|302|307|506|60[2-5])\b")
    faults = []
    for name, text in sources.items():
        for number, line in enumerate(text.splitlines(), 1):
            if unfinished.search(line) or silenced.search(line):
                faults.append(f"{name}:{number}: {line.strip()}")
        for node in ast.walk(ast.parse(text)):
            loads = isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
            if loads and "weights_only=True" not in ast.unparse(node):
                faults.append(f"{name}:{getattr(node, 'lineno', 0)}: torch.load without weights_only=True")
    return faults


def parsed(sources: Mapping[str, str]) -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in sources.items()}


def on_modules(check: Callable[[Modules], list[str]]) -> Callable[[Mapping[str, str]], list[str]]:
    return lambda sources: check(parsed(sources))


CHECKS: dict[str, Callable[[Mapping[str, str]], list[str]]] = {
    "layers": on_modules(layer_faults),
    "absolute imports": on_modules(relative_faults),
    "cycles": on_modules(cycle_faults),
    "purity": on_modules(purity_faults),
    "heavy": on_modules(heavy_faults),
    "sizes": size_faults,
    "medians": median_faults,
    "switched off": switched_off_faults,
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_rule_holds(check: str) -> None:
    assert CHECKS[check](SOURCES) == []


def lines(count: int) -> str:
    return "\n".join(["def f():", *["    x = 1"] * (count - 1)])


NAMES = "errors types study core.space store.journal cluster.slurm tasks training worker controller analysis adapters"
EMPTY = {f"hpcjf.{name}": "" for name in (*NAMES.split(), "config", "cli")}
PLANTED = [
    ("layers", "hpcjf.types", "import hpcjf.study"),
    ("layers", "hpcjf.core.space", "def f():\n    from hpcjf.store import journal"),
    ("layers", "hpcjf.store.journal", "from hpcjf.cluster.slurm import Slurm"),
    ("layers", "hpcjf.cluster.slurm", "import hpcjf.store.journal"),
    ("layers", "hpcjf.tasks", "from hpcjf import training"),
    ("layers", "hpcjf.controller", "if TYPE_CHECKING:\n    import hpcjf.worker"),
    ("layers", "hpcjf.worker", "import hpcjf.controller as c"),
    ("layers", "hpcjf.analysis", "import hpcjf.adapters"),
    ("layers", "hpcjf.training", "import hpcjf.config"),
    ("layers", "hpcjf.utils", "x = 1"),
    ("absolute imports", "hpcjf.core.space", "from . import fidelity"),
    ("absolute imports", "hpcjf.core.space", "from ..store import journal"),
    ("purity", "hpcjf.core.space", "from os import environ"),
    ("purity", "hpcjf.core.space", "from pathlib import Path"),
    ("purity", "hpcjf.core.space", "import time"),
    ("purity", "hpcjf.core.space", "def f():\n    from datetime import datetime"),
    ("purity", "hpcjf.core.space", "import torch.nn"),
    ("purity", "hpcjf.study", "import h5py"),
    ("purity", "hpcjf.core.space", "text = open('x').read()"),
    ("purity", "hpcjf.core.space", "rng = np.random.default_rng()"),
    ("heavy", "hpcjf.worker", "def f():\n    import torch"),
    ("heavy", "hpcjf.controller", "from transformers import AutoTokenizer"),
    ("heavy", "hpcjf.tasks", "import peft"),
    ("heavy", "hpcjf.core.stopping", "from skopt.space import Real"),
    ("sizes", "hpcjf.core.space", "x = 1\n" * 401),
    ("sizes", "hpcjf.core.space", lines(81)),
    ("sizes", "hpcjf.core.space", "".join(f"def f{i}(): ...\n" for i in range(5)) + "class A: ...\n" * 4),
    ("medians", "hpcjf.core.space", "x = 1\n" * 151),
    ("medians", "hpcjf.core.space", lines(11)),
    ("medians", "hpcjf.core.space", "\n".join(["def g(): ..."] * 4 + [lines(41)])),
    ("switched off", "hpcjf.core.space", "raise NotImplementedError"),
    ("switched off", "hpcjf.core.space", "x = eval('1')  # noqa"),
    ("switched off", "hpcjf.core.space", "x = eval('1')  # noqa: E501, S307"),
    ("switched off", "hpcjf.training", "state = torch.load(path, weights_only=False)"),
]


@pytest.mark.parametrize(("check", "name", "text"), PLANTED)
def test_the_check_finds_a_planted_fault(check: str, name: str, text: str) -> None:
    assert CHECKS[check](EMPTY) == []
    assert len(CHECKS[check](EMPTY | {name: text})) == 1


def test_the_check_finds_a_planted_cycle() -> None:
    planted = {"hpcjf.core.a": "from hpcjf.core.b import x", "hpcjf.core.b": "def f():\n    import hpcjf.core.a"}
    assert cycle_faults(parsed(EMPTY | planted)) != []


def test_allowed_imports_are_not_faults() -> None:
    allowed = {
        "hpcjf.types": "from hpcjf.errors import HpcjfError",
        "hpcjf.core.space": "import math, numpy, skopt\nfrom hpcjf.study import Study\nfrom hpcjf.types import Trial",
        "hpcjf.training": "import torch\nfrom hpcjf.store.journal import x\nstate = torch.load(p, weights_only=True)",
        "hpcjf.worker": "import hpcjf.training, os, time",
        "hpcjf.controller": "import hpcjf.store.journal, hpcjf.cluster.slurm, hpcjf.core.space",
        "hpcjf.cli": "import hpcjf.config, hpcjf.controller, hpcjf.worker",
    }
    for check in ("layers", "absolute imports", "cycles", "purity", "heavy", "sizes", "switched off"):
        assert CHECKS[check](EMPTY | allowed) == []


def loaded_after(*names: str) -> set[str]:
    """Heavy packages that a fresh interpreter holds after importing ``names``."""
    code = "import sys\nfor name in sys.argv[1:]: __import__(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(HEAVY) & set(done.stdout.split())


def test_the_command_line_and_the_controller_load_no_heavy_package() -> None:
    names = [name for name in MODULES if name in ("hpcjf.cli", "hpcjf.config") or part(name) == "controller"]
    names.remove("hpcjf.controller.ask")  # the searcher's own process
    assert {"hpcjf.cli", "hpcjf.config", "hpcjf.controller"} <= set(names)
    assert loaded_after(*names) == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert "skopt" in loaded_after("skopt")


UNSAFE = {
    "S102": "exec('x = 1')",
    "S301": "import pickle\npickle.loads(b'')",
    "S307": "eval('1')",
    "S506": "import yaml\nyaml.load('a', yaml.Loader)",
    "S602": "import subprocess\nsubprocess.run(f'ls {x}', shell=True)",
    "S605": "import os\nos.system(f'ls {x}')",
}


@pytest.mark.parametrize("rule", UNSAFE)
def test_ruff_refuses_unsafe_calls(rule: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "-"]
    where = ["--stdin-filename", "hpcjf/core/probe.py"]
    done = subprocess.run([*command, *where], input=UNSAFE[rule], capture_output=True, text=True, cwd=ROOT, check=False)
    assert f" {rule} " in done.stdout


def test_the_top_level_is_the_agreed_one() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    names = {line.split("/")[0] for line in listed.splitlines()}
    agreed = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    agreed |= {"hpcjf", "slurm_templates", "tests", "configs", "tools", "docs", ".ci"}
    assert {name for name in names if not name.startswith(".") or name == ".ci"} == agreed
