"""Which races are run, what is kept of them, and the script over both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcjf.errors import UserError
from race.cases import PROBLEMS
from race.ours import METHODS
from race.runs import Race, Results, peers, run, run_all, ways
from race.scale import scale
from race.stopping import Measured, Rates

SCRIPT = Path(__file__).parents[2] / "tools/bench/search"
RACES = [Race("mfh3", "random", seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of results: two races by two processes, the rules, and a study."""
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    results = Results(path)
    assert run_all(RACES, results, jobs=2) == []
    results.add_stopping([Measured("robust", "subtraction", "", Rates(10, 1, 100, 40))])
    results.add_scale({"resume_s": 0.1})
    return path


def test_results_come_back_from_their_file(kept: Path) -> None:
    again = Results(kept)
    assert sorted(again.outcomes, key=lambda race: race.seed) == RACES
    assert again.outcomes[RACES[0]] == run(RACES[0])
    assert again.stopping == [Measured("robust", "subtraction", "", Rates(10, 1, 100, 40))]
    assert again.scale == {"resume_s": 0.1}


def test_finished_races_are_not_run_again(kept: Path) -> None:
    before = kept.read_text()
    assert run_all(RACES, Results(kept), jobs=1) == []
    assert kept.read_text() == before


def test_a_line_that_was_cut_off_is_left_out(kept: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_text(kept.read_text()[:-10])
    assert list(Results(torn).outcomes) == list(Results(kept).outcomes)
    assert Results(torn).scale == {}


def test_a_fault_ends_the_run_and_keeps_what_was_finished(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    with pytest.raises(UserError, match="no problem nonsense"):
        run_all([RACES[0], Race("nonsense", "random", 0), *RACES[1:] * 20], results, jobs=1)
    assert RACES[0] in Results(tmp_path / "results.jsonl").outcomes


def test_an_unknown_name_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--methods", "jfhpo,bob"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no bob; known: jfhpo," in done.stderr


def test_where_a_method_is_raced() -> None:
    assert list(ways("optuna tpe", "mfh3")) == ["optuna tpe"]
    assert list(ways("jfhpo", "mfh3")) == ["jfhpo"]
    assert list(ways("jfhpo-no-proxy", "mfh3")) == []
    assert set(METHODS).isdisjoint(peers())
    assert len(PROBLEMS) == 12


def test_the_script_makes_tables_and_figures_from_results(kept: Path, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--parts", "none", "--results", kept, "--json", tmp_path / "figures.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| random | 1 [1, 1] |" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures == {"false_stop_rate": 0.1, "steps_saved": 0.4, "resume_s": 0.1}


def test_a_study_of_many_trials_is_measured() -> None:
    figures = scale(12)
    assert figures["scale_trials"] == 12
    assert 0 < figures["resume_s"] < figures["scale_search_cpu_s"]
    assert 30 < figures["scale_controller_rss_mb"] < figures["scale_all_in_one_rss_mb"]
    assert figures["ask_cpu_s"] == pytest.approx(figures["scale_search_cpu_s"] / 12)
