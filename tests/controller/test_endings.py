"""Causes, from result files, scheduler states and traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjf.cluster.base import JobClass, JobStatus
from hpcjf.controller.endings import FREE_RETRIES, as_of_rule, from_result, from_scheduler, measured, retry
from hpcjf.controller.watch import Rows
from hpcjf.core.lifecycle import Attempt, Ending
from hpcjf.store.messages import AttemptResult
from hpcjf.store.traces import TraceWriter, read_trace
from hpcjf.study import StoppingSection
from hpcjf.types import Cause

NOW = 1000.0


def attempt(stop: Cause | None = None) -> Attempt:
    return Attempt(trial=0, number=1, name="a", intended=0.0, job_id="7", submitted=900.0, started=950.0, stop=stop)


def result(cause: Cause) -> AttemptResult:
    return AttemptResult(
        name="a",
        cause=cause,
        step=10,
        start_step=5,
        score=0.5,
        seconds=20,
        startup_seconds=5,
        cpu_seconds=9,
        peak_mb=100,
    )


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    with TraceWriter(tmp_path / "trace.h5") as trace:
        trace.append(step=6, time=960.0, reward_mean=0.1, kl=0.0, eval_score=0.25)
        trace.append(step=7, time=970.0, reward_mean=0.1, kl=0.0)
    return read_trace(tmp_path / "trace.h5")


@pytest.mark.parametrize(
    ("said", "asked", "cause"),
    [
        (Cause.COMPLETED, None, Cause.COMPLETED),
        (Cause.COMPLETED, Cause.STOPPED_KL, Cause.COMPLETED),
        (Cause.STOPPED_KL, Cause.STOPPED_KL, Cause.STOPPED_KL),
        (Cause.PREEMPTED, Cause.STOPPED_KL, Cause.STOPPED_KL),
        (Cause.PREEMPTED, None, Cause.PREEMPTED),
        (Cause.FAILED, Cause.CANCELLED, Cause.FAILED),
    ],
)
def test_the_workers_word_counts_but_an_interruption_we_asked_for_is_ours(
    said: Cause, asked: Cause | None, cause: Cause
) -> None:
    """O3: preempted and failed are told apart."""
    ending = from_result(attempt(asked), result(said), None, NOW)
    assert (ending.cause, ending.step, ending.start_step, ending.score) == (cause, 10, 5, 0.5)


@pytest.mark.parametrize(
    ("job_class", "state", "cause"),
    [
        (JobClass.CANCELLED, "CANCELLED by 1000", Cause.CANCELLED_BY_OTHER),
        (JobClass.WALL_TIME, "TIMEOUT", Cause.TIMED_OUT),
        (JobClass.INFRASTRUCTURE, "NODE_FAIL", Cause.NODE_FAILURE),
        (JobClass.FINISHED, "COMPLETED", Cause.PREEMPTED),
        (JobClass.UNKNOWN, "", Cause.PREEMPTED),
    ],
)
def test_the_scheduler_knows_why_a_worker_was_interrupted(job_class: JobClass, state: str, cause: Cause) -> None:
    status = JobStatus("7", job_class, state)
    assert from_result(attempt(), result(Cause.PREEMPTED), status, NOW).cause is cause
    assert from_result(attempt(), result(Cause.COMPLETED), status, NOW).cause is Cause.COMPLETED


@pytest.mark.parametrize(
    ("job_class", "state", "cause"),
    [
        (JobClass.FINISHED, "COMPLETED", Cause.LOST),
        (JobClass.UNKNOWN, "", Cause.LOST),
        (JobClass.FAILED, "FAILED", Cause.FAILED),
        (JobClass.OUT_OF_MEMORY, "OUT_OF_MEMORY", Cause.OUT_OF_MEMORY),
        (JobClass.WALL_TIME, "TIMEOUT", Cause.TIMED_OUT),
        (JobClass.CANCELLED, "CANCELLED by 1000", Cause.CANCELLED_BY_OTHER),
        (JobClass.INFRASTRUCTURE, "PREEMPTED", Cause.PREEMPTED),
        (JobClass.INFRASTRUCTURE, "NODE_FAIL", Cause.NODE_FAILURE),
        (JobClass.INFRASTRUCTURE, "BOOT_FAIL", Cause.NODE_FAILURE),
        (JobClass.INFRASTRUCTURE, "LAUNCH_FAILED", Cause.LAUNCH_FAILURE),
    ],
)
def test_without_a_result_the_scheduler_gives_the_cause_and_the_trace_the_rest(
    rows: Rows, job_class: JobClass, state: str, cause: Cause
) -> None:
    """S30: COMPLETED without a result file is no success."""
    ending = from_scheduler(attempt(), JobStatus("7", job_class, state), rows, NOW)
    assert (ending.cause, ending.step, ending.start_step, ending.score) == (cause, 7, 5, 0.25)
    assert ending.seconds == 10.0
    assert ending.startup_seconds == 40.0
    assert "job 7" in ending.detail


def test_job_that_we_cancelled_after_a_stop_keeps_the_rules_cause(rows: Rows) -> None:
    status = JobStatus("7", JobClass.CANCELLED, "CANCELLED by 0")
    assert from_scheduler(attempt(Cause.STOPPED_KL), status, rows, NOW).cause is Cause.STOPPED_KL


def test_job_without_a_trace_reached_nothing() -> None:
    ending = from_scheduler(attempt(), JobStatus("7", JobClass.FAILED, "FAILED"), None, NOW)
    assert (ending.step, ending.score, ending.startup_seconds) == (0, None, 50.0)


def ended(*causes: Cause) -> list[Attempt]:
    attempts = [attempt() for _ in range(len(causes) + 1)]
    for known, cause in zip(attempts, causes, strict=False):
        known.ending = Ending(cause, NOW, 0, 0, None, 0.0, 0.0)
    return attempts


def test_retries_are_free_after_preemption_and_capped_after_wall_time() -> None:
    free = ended(*[Cause.PREEMPTED] * 20)
    assert retry(free, Cause.PREEMPTED, capped=3)
    assert retry(free, Cause.TIMED_OUT, capped=3)
    assert not retry(ended(*[Cause.PREEMPTED] * FREE_RETRIES), Cause.PREEMPTED, capped=3)
    assert retry(ended(*[Cause.TIMED_OUT] * 2), Cause.TIMED_OUT, capped=3)
    assert not retry(ended(*[Cause.TIMED_OUT, Cause.LOST, Cause.LOST]), Cause.TIMED_OUT, capped=3)


@pytest.mark.parametrize("cause", [c for c in Cause if not c.infrastructure])
def test_a_configurations_own_failure_is_never_tried_again(cause: Cause) -> None:
    assert not retry(ended(), cause, capped=3)


class TestWhatTheTraceSays:
    """A training of 20 steps, 14 skipped, whose reward is 0 from step 11 on: the paper's rule fires at step 16."""

    RULE = StoppingSection(rule="paper")

    @pytest.fixture
    def whole(self, tmp_path: Path) -> Rows:
        with TraceWriter(tmp_path / "whole.h5") as trace:
            for step in range(1, 21):
                score = 0.01 * step if step % 8 == 0 else None
                kl = float("nan") if step == 14 else 0.1
                trace.append(
                    step=step, reward_mean=0.5 * (step < 11), kl=kl, eval_score=score, tokens=step, skipped=step == 14
                )
        return read_trace(tmp_path / "whole.h5")

    def ending(self, cause: Cause, step: int) -> Ending:
        return Ending(cause, NOW, step, 5, 0.9, 70.0, 7.0, "as the job said")

    @pytest.mark.parametrize("cause", [Cause.COMPLETED, Cause.STOPPED_REWARD, Cause.PREEMPTED, Cause.OUT_OF_MEMORY])
    def test_a_trial_counts_as_of_the_row_where_the_rule_fires(self, whole: Rows, cause: Cause) -> None:
        ending = as_of_rule(self.ending(cause, 20), whole, self.RULE)
        assert (ending.cause, ending.step, ending.score) == (Cause.STOPPED_REWARD, 16, 0.16)
        assert (ending.start_step, ending.seconds, ending.startup_seconds, ending.time) == (5, 70.0, 7.0, NOW)
        assert f"the job {cause} at step 20" in ending.detail

    def test_its_score_is_the_newest_evaluation_up_to_there_or_none(self, whole: Rows) -> None:
        whole["eval_score"][:16] = float("nan")
        assert as_of_rule(self.ending(Cause.COMPLETED, 20), whole, self.RULE).score is None

    def test_where_no_rule_fires_a_completed_job_keeps_its_score_and_others_take_the_traces(self, whole: Rows) -> None:
        rows, rule = whole[:12], self.RULE
        assert as_of_rule(self.ending(Cause.COMPLETED, 12), rows, rule) == self.ending(Cause.COMPLETED, 12)
        assert as_of_rule(self.ending(Cause.OUT_OF_MEMORY, 12), rows, rule).score == 0.08

    def test_the_late_score_is_the_mean_of_the_evaluations_in_the_last_three_tenths(self, whole: Rows) -> None:
        assert measured(self.ending(Cause.COMPLETED, 20), whole).late_score == pytest.approx(0.16)
        assert measured(self.ending(Cause.COMPLETED, 10), whole).late_score == pytest.approx(0.08)
        assert measured(self.ending(Cause.COMPLETED, 14), whole).late_score is None

    def test_late_scores_are_averaged(self, tmp_path: Path) -> None:
        with TraceWriter(tmp_path / "late.h5") as trace:
            for step in range(1, 11):
                trace.append(step=step, reward_mean=0.5, kl=0.1, eval_score=0.1 * step, tokens=1)
        late = measured(self.ending(Cause.COMPLETED, 10), read_trace(tmp_path / "late.h5")).late_score
        assert late == pytest.approx((0.8 + 0.9 + 1.0) / 3)

    def test_kl_is_the_mean_of_the_last_five_that_are_finite(self, whole: Rows) -> None:
        whole["kl"] = [float("nan") if step == 14 else step for step in range(1, 21)]
        assert measured(self.ending(Cause.COMPLETED, 15), whole).kl == (15 + 13 + 12 + 11 + 10) / 5
        assert measured(self.ending(Cause.COMPLETED, 2), whole).kl == 1.5
        whole["kl"] = float("inf")
        assert measured(self.ending(Cause.COMPLETED, 20), whole).kl is None

    def test_tokens_are_the_mean_of_the_steps(self, whole: Rows) -> None:
        assert measured(self.ending(Cause.COMPLETED, 3), whole).tokens == 2.0
        assert measured(self.ending(Cause.LOST, 0), whole).tokens is None
