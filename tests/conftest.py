"""Markers, the real data and the cluster: what is missing is left out, named at the end, and a fault in CI."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

NEEDS = ("slurm", "data")
"""Markers of what a test needs from outside. They stand in the junit file as the property ``needs``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the long tests")


@functools.cache
def slurm_answers() -> bool:
    if shutil.which("scontrol") is None:
        return False
    ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=30, check=False)
    return " is UP" in ping.stdout


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties += [("needs", need) for need in NEEDS if item.get_closest_marker(need)]
    if not config.getoption("--full"):
        long = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slurm") and not slurm_answers():
        pytest.skip("no Slurm cluster answers: tools/slurm/up starts one (root on Debian)")
    if item.get_closest_marker("data") and "HPCJF_TEST_DATA" not in os.environ:
        pytest.skip("HPCJF_TEST_DATA is unset: real data left out")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    for need in NEEDS:
        names = [report.nodeid for report in skipped if ("needs", need) in report.user_properties]
        if names:
            terminalreporter.section(f"left out: {len(names)} tests that need {need}")
            for name in names:
                terminalreporter.write_line(name)
    if not terminalreporter.config.getoption("--full") and terminalreporter.stats.get("deselected"):
        terminalreporter.write_line("long tests were left out: --full runs them")


@pytest.fixture
def data_dir() -> Path:
    """The real data; only for tests marked ``data``."""
    return Path(os.environ["HPCJF_TEST_DATA"])


_MAKE_MODELS = """
import sys
from pathlib import Path
from hpcjf.training.tiny import Shape, untrained
for name, hidden, layers in (("small", 32, 1), ("large", 48, 2)):
    model, tokenizer = untrained(Shape(0, hidden, layers, 64, 0.0), seed=0)
    model.save_pretrained(Path(sys.argv[1]) / name)
    tokenizer.save_pretrained(Path(sys.argv[1]) / name)
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random models of one family, ``small`` and ``large``; a child makes them, so that torch stays out of here."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, "-c", _MAKE_MODELS, str(folder)], check=True, capture_output=True, timeout=120)
    return folder


WriteStudy = Callable[..., Path]


@pytest.fixture
def write_study(models: Path, tmp_path: Path) -> WriteStudy:
    """Writes a study of a few seconds; keyword arguments replace keys of its sections."""

    def write(**changes: dict[str, Any]) -> Path:
        study: dict[str, Any] = {
            "study": {"name": "test", "training_seeds": 1},
            "models": [{"name": name, "path": str(models / name)} for name in ("small", "large")],
            "task": {"names": ["arithmetic"], "validation_rows": 32, "test_rows": 32},
            "algorithm": {"prompts_per_step": 4, "minibatches": 2, "max_new_tokens": 3, "eval_every": 2},
            "recipe": "tiny_arithmetic",
            "budget": {"min": 2, "max": 6, "eta": 3},
            "search": {"parallel": 2, "max_trials": 5, "initial": 2},
            "checkpoints": {"save_every": 2},
            "cluster": {"executor": "local", "trace_seconds": 0.5, "poll_seconds": 1, "missing_seconds": 3},
        }
        for section, values in changes.items():
            study[section] = values if isinstance(values, list) else {**study.get(section, {}), **values}
        file = tmp_path / "study" / "study.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(study))
        return file

    return write


@pytest.fixture
def fake_model(tmp_path: Path) -> Callable[[str, int], Path]:
    """Makes a folder that passes for a model of so many parameters: a config, and weights that are a hole."""

    def make(name: str, parameters: int) -> Path:
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        tensor = {"dtype": "F32", "shape": [parameters // 10, 10], "data_offsets": [0, 4 * parameters]}
        header = json.dumps({"__metadata__": {"format": "pt"}, "weight": tensor}).encode()
        with (folder / "model.safetensors").open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + 4 * parameters)
        return folder

    return make
