"""``tools/record_surface``: a balanced plan, curves of real jobs, and a recording that goes on where it was left."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from hpcjf.study import Study

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def surface_plan() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        import surface_plan

        return surface_plan


def test_the_plan_has_every_curve_once(surface_plan: ModuleType) -> None:
    chunks = surface_plan.plan()
    curves = [curve for chunk in chunks for curve in chunk]
    assert [curve.trial for curve in curves] == list(range(400))
    counts = dict.fromkeys((c[1:] for c in curves), 1)
    assert len(counts) == 400
    for task, models in surface_plan.MODELS.items():
        for model in models:
            for seed, wanted in ((0, 16 if model == "l" else 48), (1, 0 if model == "l" else 16)):
                places = [c.configuration for c in curves if c[1:3] == (task, model) and c.seed == seed]
                assert places == list(range(wanted))
    assert all(len({(c.task, c.model, c.seed) for c in chunk}) == 1 for chunk in chunks)


def test_the_recording_begins_with_the_same_configurations_of_all_models(surface_plan: ModuleType) -> None:
    curves = [curve for chunk in surface_plan.plan() for curve in chunk]
    first = {curve[1:] for curve in curves[:96]}
    assert first == {(t, m, i, 0) for t in surface_plan.MODELS for m in ("xs", "s", "m") for i in range(16)}
    assert [curve[1:] for curve in curves[96:104]] == [("arithmetic", "l", i, 0) for i in range(8)]


def test_configurations_fill_the_space_evenly_from_the_first_on(surface_plan: ModuleType) -> None:
    study = Study.model_validate({"models": [{"name": "s", "path": "s"}], "space": surface_plan.space()})
    assert study.space
    found = surface_plan.configurations(study.space)
    assert len({json.dumps(config) for config in found}) == 48
    assert found == surface_plan.configurations(study.space)
    for config in found:
        assert 3e-6 <= config["learning_rate"] <= 3e-3
        assert config["rollouts"] in range(4, 13)
        assert 0.05 <= config["clip_range"] <= 0.4
    for count in (16, 32):
        part = found[:count]
        assert sum(config["lr_scheduler"] == "cosine" for config in part) == count / 2
        assert sum(config["learning_rate"] < math.sqrt(3e-6 * 3e-3) for config in part) == count / 2
        assert sum(config["grad_clip"] < 1.0 for config in part) == count / 2


class Recorder:
    """Calls on one run directory, with curves of three steps."""

    def __init__(self, folder: Path) -> None:
        self.run, self.out = folder / "run", folder / "out.h5"

    def command(self, limit: int, steps: int = 3) -> list[str]:
        options = f"--limit {limit} --steps {steps} --run-dir {self.run} --out {self.out}"
        return [sys.executable, str(TOOLS / "record_surface"), *options.split()]

    def call(self, *arguments: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=300)

    def table(self, group: str) -> dict[str, Any]:
        with h5py.File(self.out) as file:
            return {name: data[...] for name, data in file[group].items()}

    def jobs(self) -> int:
        return len(list((self.run / "jobs").glob("*.job.json")))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """One curve of a call that was killed while its job ran, and of the next, which took the job up."""
    recorder = Recorder(tmp_path_factory.mktemp("surface"))
    killed = subprocess.Popen(recorder.command(1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    while not recorder.jobs():
        assert killed.poll() is None, killed.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not recorder.out.exists()
    done = recorder.call(1)
    assert done.returncode == 0, done.stderr
    return recorder


def test_a_running_job_is_taken_up_and_its_curve_written(recorder: Recorder) -> None:
    assert recorder.jobs() == 1
    curves, traces = recorder.table("curves"), recorder.table("traces")
    names = ("task", "model", "configuration", "seed", "cause", "steps")
    assert [curves[name].tolist() for name in names] == [[b"arithmetic"], [b"xs"], [0], [0], [b"completed"], [3]]
    assert traces["kl"].shape == (1, 3)
    assert traces["kl"].dtype == np.float32
    assert np.isnan(traces["eval_score"][0]).tolist() == [True, True, False]
    assert traces["tokens"][0].min() > 0
    clock = traces["cpu_seconds"][0]
    assert (np.diff(clock, prepend=0.0) > 0).all()
    assert curves["startup_cpu_seconds"][0] > clock[-1]
    assert not list((recorder.run / "arithmetic" / "registry").iterdir())


def test_the_file_says_how_it_was_made(recorder: Recorder) -> None:
    with h5py.File(recorder.out) as file:
        attributes = dict(file.attrs)
    assert json.loads(attributes["parameters"])["l"] == 4_751_360
    assert json.loads(attributes["algorithm"])["horizon"] == 3
    assert json.loads(attributes["space"])["rollouts"] == {"type": "integer", "low": 4, "high": 12, "log": False}
    assert json.loads(attributes["startup_cpu_seconds"]).keys() == {"xs"}
    assert str(recorder.run) not in str(attributes)
    assert {len(values) for values in recorder.table("configurations").values()} == {48}


def test_a_later_call_records_what_is_missing_only(recorder: Recorder) -> None:
    """Also after an attempt that left no result."""
    before, first = recorder.table("traces"), recorder.run / "arithmetic" / "trials" / "0000"
    (first.with_name("0001") / "attempt-01").mkdir(parents=True)
    done = recorder.call(2)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 curves" in done.stdout
    assert recorder.jobs() == 2
    assert [path.name for path in first.iterdir()] == ["attempt-01"]
    assert recorder.table("curves")["configuration"].tolist() == [0, 1]
    for name, values in recorder.table("traces").items():
        np.testing.assert_array_equal(values[:1], before[name])
    assert recorder.call(2).returncode == 0
    assert recorder.jobs() == 2


def test_another_length_needs_another_run_directory(recorder: Recorder) -> None:
    said = recorder.call(2, 4)
    assert said.returncode == 2
    assert said.stderr.splitlines() == [
        f"{recorder.run}/arithmetic/study.yaml: recorded with other settings; name another --run-dir"
    ]
