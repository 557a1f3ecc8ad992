"""Whole studies on local processes: real jobs, real models, real files."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hpcjf.core.lifecycle import Phase
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import RunLayout
from hpcjf.store.traces import read_trace
from hpcjf.types import Cause, Purpose
from whole_studies import hpcjf, start, state_of, training, wait_until


def test_study_runs_to_its_comparison(write_study: Callable[..., Path]) -> None:
    file = write_study()
    out = hpcjf("run", file).stdout
    root = file.parent / "run"
    state = state_of(root)
    assert state.phase is Phase.DONE
    assert len(state.of(Purpose.SEARCH)) == 5
    assert all(trial.cause is not None for trial in state.trials.values())
    assert (root / "report.html").stat().st_size > 100_000
    assert "executor: local" in out
    winner = yaml.safe_load(hpcjf("best", root).stdout)
    assert set(winner) == set(state.incumbents[-1].config)
    assert "done" in hpcjf("status", root).stdout


def test_trace_has_one_row_for_each_step(write_study: Callable[..., Path]) -> None:
    file = write_study(search={"method": "recipe", "max_trials": 1})
    hpcjf("run", file)
    layout = RunLayout(file.parent / "run")
    rows = read_trace(layout.attempt(0, 1).trace)
    assert rows["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows["kl"][0] == 0.0
    assert [bool(e == e) for e in rows["eval_score"]] == [False, True, False, True, False, True]


def test_killed_controller_is_continued_without_loss_or_doubling(write_study: Callable[..., Path]) -> None:
    """S21, P25, P31, P61: kill -9 in mid-study, then the same command."""
    file = write_study(budget={"min": 4, "max": 12, "eta": 3})
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: (root / "study.yaml").exists() and any(a.job_id for _, a in state_of(root).live()))
    os.kill(controller.pid, signal.SIGKILL)
    controller.wait()
    before = state_of(root)
    running = {a.name: a.job_id for _, a in before.live()}
    hpcjf("run", root)
    after = state_of(root)
    assert after.phase is Phase.DONE
    assert after.generation == before.generation + 1
    for trial, known in before.trials.items():
        assert after.trials[trial].trial == known.trial
    names = [a.name for t in after.trials.values() for a in t.attempts]
    assert max(Counter(names).values()) == 1
    jobs = [a.job_id for t in after.trials.values() for a in t.attempts]
    assert max(Counter(jobs).values()) == 1
    known = {a.name: a.job_id for t in after.trials.values() for a in t.attempts}
    assert {name: known[name] for name, job in running.items() if job} == {n: j for n, j in running.items() if j}
    assert all(len(t.attempts) == 1 for t in after.trials.values()), "a running job was not adopted"
    events, _ = read_journal(RunLayout(root).journal)
    ended = Counter((e["trial"], e["attempt"]) for e in events if e["kind"] == "ended")
    assert max(ended.values()) == 1


@pytest.mark.full
def test_a_deterministic_study_is_the_same_after_its_controller_was_killed(write_study: Callable[..., Path]) -> None:
    file = write_study(search={"deterministic": True, "max_trials": 6})
    again = file.parent.with_name("again") / file.name
    again.parent.mkdir()
    again.write_text(file.read_text())
    hpcjf("run", file)
    root = again.parent / "run"
    controller = start(again)
    wait_until(lambda: (root / "study.yaml").exists() and len(state_of(root).over) > 1)
    os.kill(controller.pid, signal.SIGKILL)
    controller.wait()
    hpcjf("run", root)
    first, second = state_of(file.parent / "run"), state_of(root)
    assert second.generation == 2
    assert [t.trial for t in second.trials.values()] == [t.trial for t in first.trials.values()]
    searched = [[known.in_work(1.0) for known in state.of(Purpose.SEARCH)] for state in (first, second)]
    assert searched[0] == searched[1]


def test_stop_now_saves_and_the_study_goes_on_where_it_was(write_study: Callable[..., Path]) -> None:
    """P62: a stop lets the trial save; P59, P61: the resumed study has the same trials."""
    long = {"budget": {"min": 500, "max": 500}, "algorithm": {"eval_every": 250}, "checkpoints": {"save_every": 250}}
    file = write_study(search={"max_trials": 2, "initial": 1}, **long)
    root = file.parent / "run"
    for _ in range(2):
        controller = start(file)
        wait_until(lambda: training(root) == 2)
        hpcjf("stop", root, "--now")
        assert controller.wait(timeout=120) == 1
        stopped = state_of(root)
        assert stopped.phase is Phase.STOPPED
        assert not list(stopped.live())
    assert len(stopped.trials) == 2
    for known in stopped.trials.values():
        first, second = (attempt.ending for attempt in known.attempts)
        assert first is not None
        assert second is not None
        assert (first.cause, second.cause) == (Cause.CANCELLED, Cause.CANCELLED)
        assert second.start_step == first.step > 0


def test_second_controller_is_refused(write_study: Callable[..., Path]) -> None:
    file = write_study(budget={"min": 40, "max": 40})
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: (root / "controller.lock").exists() and (root / "study.yaml").exists())
    refused = hpcjf("run", root, check=False)
    assert refused.returncode != 0
    assert "held by process" in refused.stderr
    hpcjf("stop", root, "--now")
    controller.wait(timeout=120)


def test_environment_that_cannot_work_stops_the_study(write_study: Callable[..., Path]) -> None:
    """P52: say the cause and the command instead of failing every trial."""
    file = write_study(cluster={"setup": ["exit 3"]})
    done = hpcjf("run", file, check=False)
    assert done.returncode == 1
    assert "failed before a training step" in done.stderr
    assert "hpcjf run" in done.stderr


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_once_detaches_and_twice_stops(write_study: Callable[..., Path], presses: int) -> None:
    file = write_study(budget={"min": 500, "max": 500}, algorithm={"eval_every": 250}, search={"max_trials": 2})
    root = file.parent / "run"
    controller = start(file)
    wait_until(lambda: training(root) == 2)
    for _ in range(presses):
        os.killpg(controller.pid, signal.SIGINT)
        time.sleep(0.3)  # two presses of one key, not a wait for a condition
    code = controller.wait(timeout=120)
    state = state_of(root)
    if presses == 1:
        assert code == 0
        assert len(list(state.live())) == 2
        hpcjf("stop", root, "--now")
        assert not list(state_of(root).live())
    else:
        assert code == 1
        assert state.phase is Phase.STOPPED
        assert not list(state.live())
