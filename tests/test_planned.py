"""``hpcjf plan``: a study file becomes a table of jobs and costs, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjf.core.lifecycle import Phase
from hpcjf.errors import UserError
from hpcjf.planned import show_plan
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout

Plan = Callable[..., str]
STUDY: dict[str, Any] = {
    "study": {"name": "demo", "training_seeds": 2},
    "models": [
        {"name": "s", "path": "nobody/small", "parameters": 1_000_000},
        {"name": "m", "path": "nobody/middle", "parameters": 4_000_000},
        {"name": "l", "path": "nobody/large", "parameters": 16_000_000, "resources": {"gpus": 4, "time_minutes": 60}},
    ],
    "recipe": "tiny_arithmetic",
    "budget": {"min": 10, "max": 90, "eta": 3},
    "search": {"method": "random", "max_trials": 5, "parallel": 3},
    "cluster": {"gpus": 1},
}


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    """What is printed for a study with sections replaced."""

    def call(*given: str, run: Path | None = None, **sections: Any) -> str:
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump(STUDY | sections))
        show_plan(file, given, run)
        return capsys.readouterr().out

    return call


def rows(text: str) -> list[list[str]]:
    lines = text.split("\n\n")[1].splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are not aligned"
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_hours_from_seconds_per_step(plan: Plan) -> None:
    text = plan("l=40")
    assert rows(text) == [
        ["part", "model", "budget", "trials", "jobs", "steps", "job hours", "GPU-hours"],
        ["search", "l", "90", "5", "5", "450", "5.00", "20.00"],
        ["final", "l", "90", "4", "4", "360", "4.00", "16.00"],
        ["all", "9", "9", "810", "9.00", "36.00"],
    ]
    assert "budgets: 10 → 30 → 90 steps; what ends the search: max_trials, 5" in text
    assert "jobs in flight: at most 3 in the search, 3 in the final comparison" in text
    assert "wall time: 2.0 h and 2.0 h, if no job waits in the queue" in text


def test_a_wall_time_limit_makes_more_jobs(plan: Plan) -> None:
    assert rows(plan("l=50"))[1][3:5] == ["5", "10"]


def test_other_models_are_scaled_by_their_sizes(plan: Plan) -> None:
    assert f"seconds per step: s {8 / 4**0.7:.3g} (scaled), m 8 (given), l {8 * 4**0.7:.3g} (scaled)" in plan("m=8")
    both = plan("s=1", "l=100")
    assert f"s 1 (given), m {1 * 4**0.7:.3g} (scaled), l 100 (given); scaled by parameters^0.7" in both


def test_without_seconds_costs_are_in_trainings_of_the_target(plan: Plan) -> None:
    text = plan()
    assert rows(text)[0][-1] == "target trainings"
    assert rows(text)[1][-1] == "5.00"
    assert "one unit of cost is a full training of the target; a step costs parameters^0.7; --seconds-per-step" in text
    assert "wall time" not in text


def test_a_search_over_models_has_a_row_for_each_rung(plan: Plan) -> None:
    table = rows(plan(search={"method": "jfhpo", "max_trials": 8, "initial": 3}))
    assert ["search", "s", "10"] in [row[:3] for row in table]
    assert sum(int(row[3]) for row in table if row[0] == "search") == 8


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """A run in which jobs of s and m ended."""
    layout = RunLayout(tmp_path / "run")
    layout.create()
    journal = JournalWriter(layout.journal)
    ends = [("s", 0, 10, 20.0, 5.0), ("s", 10, 30, 80.0, 7.0), ("m", 0, 10, 90.0, 9.0), ("m", 0, 0, 3.0, 99.0)]
    for number, (model, start, step, seconds, startup) in enumerate(ends):
        journal.append(
            {
                "kind": "trial", "time": 1, "number": number, "config_id": "c0ffee", "config": {}, "model": model,
                "steps": 30, "training_seed": 0, "purpose": "search", "why": {},
            }
        )  # fmt: skip
        journal.append({"kind": "attempt", "time": 2, "trial": number, "attempt": 1, "name": "a"})
        journal.append(
            {
                "kind": "ended", "time": 3, "trial": number, "attempt": 1, "cause": "completed", "step": step,
                "start_step": start, "score": 0.5, "seconds": seconds, "startup_seconds": startup, "detail": "",
                "retry": False,
            }
        )  # fmt: skip
    journal.append({"kind": "phase", "time": 4, "phase": Phase.STOPPED, "reason": ""})
    return layout.root


def test_an_earlier_run_tells_steps_and_start_ups(plan: Plan, timed: Path) -> None:
    text = plan(run=timed)
    scaled = 9 * 4**0.7
    assert f"seconds per step: s 3.33 (as in {timed}), m 9 (as in {timed}), l {scaled:.3g} (scaled)" in text
    assert "seconds of start-up and shut-down: s 6, m 9, l 7.5" in text
    assert rows(text)[1][-2] == f"{5 * (90 * scaled + 7.5) / 3600:.2f}"


def test_what_is_given_wins_over_an_earlier_run(plan: Plan, timed: Path) -> None:
    assert "m 2 (given), l 3 (given)" in plan("m=2", "l=3", run=timed)


def test_a_run_of_other_models_is_refused(plan: Plan, timed: Path) -> None:
    other = [{"name": "x", "path": "nobody/x", "parameters": 5}]
    with pytest.raises(UserError, match="no job there trained a model of this study; name a run with one of x"):
        plan(run=timed, models=other)


@pytest.mark.parametrize("text", ["l", "l=", "l=fast", "l=0", "l=-1", "l=nan", "l=inf", "x=1", "=1", ""])
def test_seconds_that_say_nothing_are_refused(plan: Plan, text: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(text)
    assert str(caught.value) == (
        f"--seconds-per-step: {text!r} says no model's seconds; write MODEL=SECONDS with a model of s, m, l, e.g. l=2.5"
    )


def test_dead_dimensions_are_named(plan: Plan) -> None:
    assert "dead dimensions: none is known" in plan()
    text = plan(algorithm={"minibatches": 1})
    assert "dead dimensions:\n  clip_range: algorithm.minibatches is 1" in text


def test_what_is_left_out_is_said(plan: Plan) -> None:
    search = {
        "method": "random",
        "max_trials": 3,
        "max_hours": 1,
        "warm_start": "/runs/first",
        "constraints": ["rollouts * prompts_per_step <= 128"],
    }
    text = plan(search=search)
    assert "max_hours and max_job_hours cannot be reached: no seconds per step are known" in text
    assert "search.warm_start is left out" in text
    [share] = re.findall(r"search.constraints leave ([0-9.]+) % of the space", text)
    assert float(share) == pytest.approx(100 * 5 / 9, abs=2)
    assert "cannot be reached" not in plan("l=1", search=search)


def test_the_recipe_alone_is_its_own_comparison(plan: Plan) -> None:
    table = rows(plan(search={"method": "recipe"}))
    assert [row[:4] for row in table[1:3]] == [["search", "l", "90", "1"], ["final", "l", "90", "2"]]


def test_nothing_is_left_behind(plan: Plan, tmp_path: Path) -> None:
    plan()
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
