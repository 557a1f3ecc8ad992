"""What one tick makes of the scheduler's and the files' word, and of a stop, at any point of an attempt's life."""

from __future__ import annotations

from pathlib import Path

import pytest
from controller.site import Bench

from hpcjf.cluster.base import JobClass
from hpcjf.core.lifecycle import Phase
from hpcjf.errors import LimitClusterError, TransientClusterError
from hpcjf.store.registry import Registry
from hpcjf.store.traces import TraceWriter
from hpcjf.types import Cause


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "run")


@pytest.mark.parametrize("now", [False, True])
def test_a_stop_withdraws_what_the_scheduler_has_not_taken(bench: Bench, now: bool) -> None:
    bench.site.fault = LimitClusterError("job queue full")
    bench.tick()
    assert [a.job_id for a in bench.live()] == [None, None]
    bench.site.fault = None
    bench.stop(now=now)
    bench.tick(3600)
    assert bench.controller.over
    assert not bench.site.jobs
    assert {t.cause for t in bench.controller.state.trials.values()} == {None}, "a resume takes the trials up again"


def test_a_stop_waits_until_the_scheduler_says_whether_it_took_the_job(bench: Bench) -> None:
    bench.site.lost_answer = TransientClusterError("socket timed out")
    bench.tick()
    bench.stop(now=True)
    bench.site.fault = TransientClusterError("no answer")
    bench.tick(3600)
    assert [a.name for a in bench.live()] == [bench.site.jobs["1"].name]
    bench.site.fault = None
    for _ in range(4):
        bench.tick(3600)
    assert bench.controller.over
    assert set(bench.site.cancelled) == {"1"}


def test_a_stop_leaves_the_cause_of_a_trial_that_a_rule_has_stopped(bench: Bench) -> None:
    bench.tick()
    first, second = bench.live()
    bench.controller._order(bench.controller.state.trials[0].trial, first, Cause.STOPPED_KL, "test")
    bench.stop(now=True)
    bench.tick()
    bench.tick(3600)
    bench.tick(3600)
    assert bench.controller.over
    assert bench.controller.state.phase is Phase.STOPPED
    assert [bench.controller.state.trials[n].cause for n in (0, 1)] == [Cause.STOPPED_KL, None]
    assert second.ending is not None
    assert second.ending.cause is Cause.CANCELLED


def test_a_lost_answer_doubles_no_job_whether_the_controller_lives_on_or_not(bench: Bench) -> None:
    bench.site.lost_answer = TransientClusterError("socket timed out")
    bench.tick()
    bench.site.lost_answer = None
    bench.restart()
    bench.tick(3600)
    names = [job.name for job in bench.site.jobs.values()]
    assert len(names) == len(set(names)) == 2
    assert [a.job_id for a in bench.live()] == ["1", "2"]
    assert all(job.job_class is JobClass.PENDING for job in bench.site.jobs.values())


def test_the_byte_budget_spares_trials_between_two_attempts_and_the_best_configuration(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", checkpoints={"max_gb": 1e-9}, search={"max_trials": 4, "parallel": 3})
    bench.tick()
    controller = bench.controller
    best = controller.state.trials[1].trial
    controller.emit("incumbent", config_id=best.config_id, config=dict(best.config), score=0.5)
    for job_id in ("1", "2", "3"):
        known = controller.state.trials[int(job_id) - 1].trial
        entry = Registry(bench.layout.registry).entry(known.config_id, "s", 0)
        entry.claim(job_id, 0)
        staging = entry.staging(10)
        (staging / "weights").write_bytes(b"x" * 100)
        entry.publish(staging, 10, owner=job_id, generation=0, meta={})
    bench.site.become("1", JobClass.INFRASTRUCTURE, "PREEMPTED")
    bench.site.become("2", JobClass.FAILED)
    bench.site.become("3", JobClass.FAILED)
    for _ in range(3):
        bench.tick(121)
    kept = {
        n
        for n in range(3)
        if list(bench.layout.entry(controller.state.trials[n].trial.config_id, "s", 0).glob("step-*"))
    }
    assert len(controller.state.trials[0].attempts) == 2
    assert kept == {0, 1}


def test_a_job_that_the_scheduler_does_not_know_lives_while_its_trace_grows(bench: Bench) -> None:
    bench.tick()
    first = bench.live()[0]
    bench.site.forget("1")
    with TraceWriter(bench.paths(first).trace) as trace:
        for step in range(1, 6):
            trace.append(step=step, kl=0.0, reward_mean=0.5)
            bench.tick(100)
    assert first.ending is None
    for _ in range(3):
        bench.tick(100)
    assert first.ending is not None
    assert first.ending.cause is Cause.LOST


def test_no_job_is_lost_while_the_scheduler_is_silent(bench: Bench) -> None:
    bench.tick()
    first = bench.live()[0]
    bench.site.forget("1")
    bench.tick(100)
    bench.site.fault = TransientClusterError("no answer")
    bench.tick(3600)
    bench.tick(3600)
    assert first.ending is None
    bench.site.fault = None
    bench.tick(3600)
    assert first.ending is not None


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all" * 100])
def test_a_damaged_trace_harms_no_other_trial(bench: Bench, content: bytes) -> None:
    bench.tick()
    first, second = bench.live()
    bench.paths(first).trace.write_bytes(content)
    bench.paths(second).trace.symlink_to(bench.paths(first).trace)
    bench.site.become("1", JobClass.FAILED)
    for _ in range(3):
        bench.tick(121)
    assert first.ending is not None
    assert (first.ending.cause, first.ending.step) == (Cause.FAILED, 0)
    assert second.ending is None
    assert bench.notes.count(str(bench.paths(second).trace)) == 1
