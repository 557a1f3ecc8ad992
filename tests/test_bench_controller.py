"""``tools/bench/controller``: a quick run gives every figure, each possible, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools/bench/controller"
KEYS = {"help_cpu_s", "status_cpu_s", "rss_mb", "poll_cpu_s", "reload_s"}
MARK = f"BENCH_TEST={os.getpid()}"
"""In the environment of all that the run starts."""
MORE = {"show_cpu_s", "lived_rss_mb", "ask_cpu_s", "ask_rss_mb", "tree_rss_mb"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, float], str]:
    """The figures and the table of one quick run, on whose machine no environment for the peer was made."""
    folder = tmp_path_factory.mktemp("bench")
    environment = os.environ | {"HPCJF_CACHE": str(folder / "cache")} | dict([MARK.split("=")])
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(folder / "figures.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert not (folder / "cache").exists()
    return json.loads((folder / "figures.json").read_text()), done.stdout


def test_every_figure_is_there_with_its_number_of_trials(quick: tuple[dict[str, float], str]) -> None:
    figures, _ = quick
    for key in KEYS | MORE:
        assert figures[key] > 0
        assert figures[f"{key}_at_12"] > 0
        assert figures[f"{key}_trials"] == 200
    assert all(type(value) in (int, float) for value in figures.values())


def test_memory_keeps_its_promise(quick: tuple[dict[str, float], str]) -> None:
    figures, _ = quick
    assert 30 < figures["rss_mb_at_12"] < 160
    assert 30 < figures["rss_mb"] < 160
    assert figures["lived_rss_mb"] < 160
    assert figures["tree_rss_mb"] == pytest.approx(figures["rss_mb"] + figures["ask_rss_mb"])


def test_the_parts_of_a_figure_are_smaller_than_the_whole(quick: tuple[dict[str, float], str]) -> None:
    """CPU times against each other: the machine's load moves them together."""
    figures, _ = quick
    assert figures["help_cpu_s"] < figures["status_cpu_s"] < figures["ask_cpu_s"]
    assert figures["poll_cpu_s"] < figures["status_cpu_s"]
    assert figures["reload_s"] < figures["status_cpu_s"]


def test_the_table_names_command_machine_and_targets(quick: tuple[dict[str, float], str]) -> None:
    _, table = quick
    assert table.startswith("tools/bench/controller --quick: ")
    assert f"Python {'.'.join(map(str, sys.version_info[:3]))}" in table
    for key in KEYS | MORE:
        assert key in table
    assert "< 160\n" in table


@pytest.mark.usefixtures("quick")
def test_no_job_is_left_running() -> None:
    """Jobs are processes of their own sessions, which outlive whoever started them."""
    assert [path for path in Path("/proc").glob("[0-9]*/environ") if MARK.encode() in _content(path)] == []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone, or another user's
        return b""


def test_it_finds_the_tools_environment_by_itself(tmp_path: Path) -> None:
    """Started by an interpreter without hpcjf, as from a shell where no environment is active."""
    environment = os.environ | {"HPCJF_VENV": sys.prefix, "PYTHONPATH": ""}
    base = Path(sys.base_prefix) / "bin/python3"
    done = subprocess.run(
        [base, "-S", SCRIPT, "--help"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
