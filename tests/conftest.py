"""Markers, the real data and the cluster: what is missing is left out, named at the end, and a fault in CI."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
