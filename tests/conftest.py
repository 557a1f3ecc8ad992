"""Markers, the real data and the cluster: what is missing is skipped, named, and counted by CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the long tests")


def slurm_answers() -> bool:
    if shutil.which("scontrol") is None:
        return False
    ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=30, check=False)
    return " is UP" in ping.stdout


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skips = {}
    if not config.getoption("--full"):
        skips["full"] = "long test: run with --full"
    if any(item.get_closest_marker("slurm") for item in items) and not slurm_answers():
        skips["slurm"] = "no Slurm cluster answers: tools/slurm/up starts one (root on Debian)"
    if "HPCJF_TEST_DATA" not in os.environ:
        skips["data"] = "HPCJF_TEST_DATA is unset: real data left out"
    for item in items:
        for marker, reason in skips.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def data_dir() -> Path:
    """The real data; only for tests marked ``data``."""
    return Path(os.environ["HPCJF_TEST_DATA"])
