"""Whole studies on a real Slurm cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcjf.core.lifecycle import Phase
from hpcjf.store.layout import RunLayout
from hpcjf.store.registry import Registry
from hpcjf.types import Cause, Purpose
from whole_studies import hpcjf, start, state_of, training, wait_until

pytestmark = pytest.mark.slurm

SLURM = {
    "executor": "slurm",
    "partition": "high",
    "cpus": 1,
    "mem_gb": 1.5,
    "time_minutes": 10,
    "trace_seconds": 1,
    "poll_seconds": 2,
    "missing_seconds": 5,
}


def jobs_named(run_id: str) -> list[str]:
    """Names of all jobs of a run that the accounts know."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobName", "--starttime=now-1hours"]
    names = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [name for name in names if run_id in name]


def test_killed_controller_adopts_its_jobs_and_ends_the_study(write_study: Callable[..., Path]) -> None:
    """S21, P25, P31: kill -9 in mid-study; one job for each attempt, none lost, the comparison at the end."""
    file = write_study(
        cluster=SLURM, search={"parallel": 3, "max_trials": 6, "initial": 2}, checkpoints={"save_every": 1}
    )
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: training(root) > 0)
    os.kill(controller.pid, signal.SIGKILL)
    controller.wait()
    before = state_of(root)
    hpcjf("run", root)
    after = state_of(root)
    assert after.phase is Phase.DONE
    assert after.generation == before.generation + 1
    attempts = [attempt for known in after.trials.values() for attempt in known.attempts]
    assert sorted(jobs_named(after.run_id)) == sorted(attempt.name for attempt in attempts), "one job an attempt"
    assert max(Counter(attempt.job_id for attempt in attempts).values()) == 1
    assert all(len(known.attempts) == 1 for known in after.trials.values())
    for number, known in before.trials.items():
        if known.observation() is not None:
            assert after.trials[number].observation() == known.observation()
    assert all(known.observation() is not None for known in after.trials.values())
    assert {t.trial.purpose for t in after.trials.values()} >= {Purpose.SEARCH, Purpose.RECIPE}
    assert (root / "report.html").exists()


def test_rule_stops_a_trial_which_saves_first(write_study: Callable[..., Path]) -> None:
    """P29, P62: all-zero rewards fire the paper's rule after five steps; the trial saves at the step boundary."""
    file = write_study(
        cluster=SLURM,
        budget={"min": 400, "max": 400},
        search={"max_trials": 1, "method": "recipe"},
        stopping={"rule": "paper"},
        algorithm={"eval_every": 50},
        checkpoints={"save_every": 100},
    )
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: (root / "study.yaml").exists() and 0 in state_of(root).trials and _over(root))
    hpcjf("stop", root, "--now")
    controller.wait(timeout=120)
    ending = state_of(root).trials[0].attempts[0].ending
    assert ending is not None
    assert ending.cause is Cause.STOPPED_REWARD
    assert 5 <= ending.step < 400
    assert ending.score is not None
    trial = state_of(root).trials[0].trial
    saved = Registry(RunLayout(root).registry).entry(trial.config_id, "large", 0).newest()
    assert saved is not None
    assert saved.step == ending.step


def _over(root: Path) -> bool:
    return state_of(root).trials[0].cause is not None


def test_preempted_trial_goes_on_where_it_saved(write_study: Callable[..., Path]) -> None:
    """O3, P38, S6: a preemption costs a new attempt that resumes, never the trial."""
    cluster = {**SLURM, "partition": "low"}
    file = write_study(
        cluster=cluster,
        budget={"min": 300, "max": 300},
        search={"max_trials": 1, "method": "recipe"},
        algorithm={"eval_every": 100},
        checkpoints={"save_every": 5},
    )
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: training(root) > 0)
    [(_, attempt)] = list(state_of(root).live())
    subprocess.run(["scancel", "--signal=USR2", str(attempt.job_id)], check=True, timeout=60)
    wait_until(lambda: len(state_of(root).trials[0].attempts) == 2 and training(root) == 1)
    hpcjf("stop", root, "--now")
    controller.wait(timeout=120)
    first, second = (attempt.ending for attempt in state_of(root).trials[0].attempts)
    assert first is not None
    assert second is not None
    assert first.cause is Cause.PREEMPTED
    assert second.start_step == first.step > 0


def test_job_cancelled_by_hand_is_not_tried_again(write_study: Callable[..., Path]) -> None:
    file = write_study(
        cluster=SLURM,
        budget={"min": 300, "max": 300},
        search={"max_trials": 1, "method": "recipe"},
        algorithm={"eval_every": 100},
    )
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: training(root) > 0)
    [(_, attempt)] = list(state_of(root).live())
    subprocess.run(["scancel", str(attempt.job_id)], check=True, timeout=60)
    wait_until(lambda: _over(root))
    hpcjf("stop", root, "--now")
    controller.wait(timeout=120)
    known = state_of(root).trials[0]
    assert len(known.attempts) == 1
    assert known.cause is Cause.CANCELLED_BY_OTHER


def test_controller_runs_as_a_job_of_its_own(write_study: Callable[..., Path]) -> None:
    """P26, S21: for sites that allow no long process on a login node."""
    file = write_study(cluster=SLURM, search={"max_trials": 1, "method": "recipe"})
    script = hpcjf("sbatch", file, "--minutes", "10").stdout
    subprocess.run(["sbatch"], input=script, text=True, check=True, capture_output=True, timeout=60)
    root = file.parent / "run"
    wait_until(lambda: RunLayout(root).study.exists() and state_of(root).phase is Phase.DONE)
    assert state_of(root).controller["job_id"]
    assert len(state_of(root).of(Purpose.RECIPE)) == 1


@pytest.mark.parametrize("shape", [{"processes": 2, "cpus": 2, "mem_gb": 3}, {"nodes": 2}])
def test_a_trial_of_two_processes(write_study: Callable[..., Path], shape: dict[str, int]) -> None:
    """On one node and on two; the first process alone writes."""
    search = {"parallel": 1, "max_trials": 1, "method": "random"}
    file = write_study(cluster=SLURM | shape, search=search)
    root = file.parent / "run"
    hpcjf("run", file)
    state = state_of(root)
    assert state.phase is Phase.DONE
    for number, known in state.trials.items():
        assert known.cause is Cause.COMPLETED
        folder = RunLayout(root).attempt(number, 1).job_folder
        said = [path.read_text() for path in sorted(folder.glob("*_log.out"))]
        assert len(said) == 2, "a log of each process"
        assert [text.count("completed at step") for text in said] == [1, 0]


def test_a_process_that_dies_takes_the_trial_with_it(write_study: Callable[..., Path]) -> None:
    """The first one does not wait for its share for ever."""
    file = write_study(
        cluster=SLURM | {"processes": 2, "cpus": 2, "mem_gb": 3, "retries": 0},
        search={"parallel": 1, "max_trials": 1, "method": "random"},
        budget={"min": 2, "max": 500},
    )
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: training(root) > 0)
    found = subprocess.run(
        ["pgrep", "-f", "submitit.core._submit.*study/run/trials/0000"], capture_output=True, text=True
    )
    second = [pid for pid in found.stdout.split() if "SLURM_PROCID=1" in Path(f"/proc/{pid}/environ").read_text()]
    os.kill(int(second[0]), signal.SIGKILL)
    wait_until(lambda: state_of(root).trials[0].cause is not None)
    assert state_of(root).trials[0].cause in (Cause.FAILED, Cause.OUT_OF_MEMORY)
    hpcjf("stop", root, "--now")
    controller.wait(timeout=120)
