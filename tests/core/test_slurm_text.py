"""Texts of Slurm: every state, both tables, sbatch's errors; hostile text never does harm."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjf.core.slurm_text import (
    JobClass,
    parse_job_id,
    parse_sacct,
    parse_squeue,
    submission_error,
)
from hpcjf.errors import ClusterError, LimitClusterError, PermanentClusterError, TransientClusterError

ACTIVE = "PENDING CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED RESIZING SIGNALING STAGE_OUT REQUEUED REQUEUE_FED"
HELD = "REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD"
INFRASTRUCTURE = "PREEMPTED NODE_FAIL BOOT_FAIL REVOKED LAUNCH_FAILED RECONFIG_FAIL"


def squeue_line(
    job_id: str = "7",
    name: str = "t",
    state: str = "RUNNING",
    start: str = "100",
    end: str = "N/A",
    restarts: str = "0",
    reason: str = "None",
) -> str:
    return f"{job_id:<64}{name:<256}{state:<32}{start:<32}{end:<32}{restarts:<16}{reason:<256}\n"


@pytest.mark.parametrize("state", ACTIVE.split())
def test_a_job_that_may_still_run_is_active(state: str) -> None:
    """P38, P46: CONFIGURING, COMPLETING, REQUEUED and SUSPENDED are not ends."""
    job_class = JobClass.of(state)
    assert job_class.active
    assert not job_class.ended


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (HELD, JobClass.HELD),
        (INFRASTRUCTURE, JobClass.INFRASTRUCTURE),
        ("TIMEOUT DEADLINE", JobClass.WALL_TIME),
        ("FAILED", JobClass.FAILED),
        ("OUT_OF_MEMORY", JobClass.OUT_OF_MEMORY),
        ("CANCELLED CANCELLED+", JobClass.CANCELLED),
        ("COMPLETED", JobClass.FINISHED),
    ],
)
def test_every_other_state_has_its_class(states: str, expected: JobClass) -> None:
    assert {JobClass.of(state) for state in states.split()} == {expected}
    assert {JobClass.of(state.lower()) for state in states.split()} == {expected}


def test_only_ends_count_as_ended() -> None:
    assert {job_class for job_class in JobClass if job_class.ended} == {
        JobClass.INFRASTRUCTURE,
        JobClass.WALL_TIME,
        JobClass.OUT_OF_MEMORY,
        JobClass.FAILED,
        JobClass.CANCELLED,
        JobClass.FINISHED,
    }


@pytest.mark.parametrize("state", ["CANCELLED by 0", "CANCELLED by 1000", "CANCELLED by someone"])
def test_cancelled_is_matched_by_its_prefix(state: str) -> None:
    assert JobClass.of(state) is JobClass.CANCELLED


@pytest.mark.parametrize("state", ["", " ", "EXPEDITING", "POWER_UP_NODE", "UNKNOWN", "n/a", "COMPLETEDX", "\x00"])
def test_an_unknown_state_is_never_done(state: str) -> None:
    """P46: a state that we do not know is unknown, not dead."""
    assert JobClass.of(state) is JobClass.UNKNOWN
    assert not JobClass.of(state).ended


@pytest.mark.parametrize(
    "reason",
    [
        "launch failed requeued held",
        "launch_failed_requeued_held",
        "JobHeldUser",
        "JobHeldAdmin",
        "JobHoldMaxRequeue",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "InvalidAccount",
        "InvalidQOS",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxCpuPerJobLimit",
        "QOSMaxGRESPerJob",
    ],
)
def test_a_pending_reason_that_never_clears_is_held(reason: str) -> None:
    """S16: pending for ever is told to the user."""
    assert JobClass.of("PENDING", reason) is JobClass.HELD
    assert JobClass.of("RUNNING", reason) is JobClass.RUNNING


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "None",
        "Priority",
        "Resources",
        "Dependency",
        "BeginTime",
        "QOSMaxJobsPerUserLimit",
        "AssocGrpGRES",
        "AssocMaxJobsLimit",
        "ReqNodeNotAvail, UnavailableNodes:node1",
        "PartitionDown",
        "Licenses",
    ],
)
def test_waiting_in_the_queue_is_normal(reason: str) -> None:
    """P47: hours in the queue are no failure."""
    assert JobClass.of("PENDING", reason) is JobClass.PENDING


def test_squeue_rows_become_jobs() -> None:
    text = squeue_line("7", "a-1", "RUNNING", "1796068622", "1796069000", "2") + squeue_line(
        "8", "b", "PENDING", "1796070000", reason="Resources"
    )
    jobs = parse_squeue(text)
    assert (jobs["7"].job_class, jobs["7"].started, jobs["7"].restarts, jobs["7"].name) == (
        JobClass.RUNNING,
        1796068622.0,
        2,
        "a-1",
    )
    assert jobs["7"].ended is None, "the end of a running job is a forecast"
    assert jobs["8"].started is None, "the start of a pending job is a forecast"
    assert (jobs["8"].reason, jobs["7"].reason) == ("Resources", "")


def test_a_reason_of_many_words_is_kept_whole() -> None:
    [job] = parse_squeue(squeue_line(state="PENDING", reason="launch failed requeued held")).values()
    assert (job.job_class, job.reason) == (JobClass.HELD, "launch failed requeued held")


@pytest.mark.parametrize("job_id", ["123_[4-10%5]", "1[1%1]", "12_3", "", "x", "12+0"])
def test_rows_of_arrays_and_rubbish_are_not_ours(job_id: str) -> None:
    """S15: we submit no arrays; their ids must not be taken for a job's."""
    assert parse_squeue(squeue_line(job_id)) == {}


def test_sacct_rows_become_jobs() -> None:
    text = "7|a-1|1796068622|1796068625|0:0|COMPLETED\n7.batch|batch|1796068622|1796068625|0:0|COMPLETED\n"
    [job] = parse_sacct(text).values()
    assert (job.job_class, job.started, job.ended, job.name) == (
        JobClass.FINISHED,
        1796068622.0,
        1796068625.0,
        "a-1",
    )


@pytest.mark.parametrize(("state", "exit_code"), [("OUT_OF_MEMORY", "0:9"), ("FAILED", "0:125")])
def test_out_of_memory_is_read_from_the_step(state: str, exit_code: str) -> None:
    """P28, P43: the job's own row says FAILED only."""
    text = f"7|a|1|2|1:0|FAILED\n7.batch|batch|1|2|1:0|FAILED\n7.0|python|1|2|{exit_code}|{state}\n8|b|1|2|1:0|FAILED\n"
    jobs = parse_sacct(text)
    assert jobs["7"].job_class is JobClass.OUT_OF_MEMORY
    assert jobs["8"].job_class is JobClass.FAILED
    assert jobs["8"].reason == "exit code 1:0"


def test_a_completed_job_with_a_starved_step_has_finished() -> None:
    assert parse_sacct("7|a|1|2|0:0|COMPLETED\n7.0|x|1|2|0:125|OUT_OF_MEMORY\n")["7"].job_class is JobClass.FINISHED


def test_sacct_names_the_user_who_cancelled() -> None:
    [job] = parse_sacct("7|a|Unknown|5|0:0|CANCELLED by 1000\n").values()
    assert (job.job_class, job.cancelled_by, job.started) == (JobClass.CANCELLED, "1000", None)


def test_sacct_may_not_know_the_name_yet() -> None:
    assert parse_sacct("7|allocation|1|2|0:0|COMPLETED\n")["7"].name == ""


def test_a_name_with_the_separator_does_not_shift_columns() -> None:
    [job] = parse_sacct("7|a|b|RUNNING|1|2|0:0|COMPLETED\n").values()
    assert (job.name, job.job_class) == ("a|b|RUNNING", JobClass.FINISHED)


@pytest.mark.parametrize("text", ["123", "123\n", "123;tux\n", "sbatch: lua: welcome\n123;tux\n\n", " 123 \n"])
def test_the_job_id_stands_on_the_last_line(text: str) -> None:
    assert parse_job_id(text) == "123"


@pytest.mark.parametrize("text", ["", "\n", "Submitted batch job 123", "12 3", "-1", "1e3", "123\nbye", "١٢"])
def test_without_a_job_id_the_job_must_be_looked_up(text: str) -> None:
    with pytest.raises(TransientClusterError, match="no job id"):
        parse_job_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    ],
)
def test_a_lost_or_busy_controller_is_transient(text: str) -> None:
    """S12, P35."""
    assert type(submission_error(text)) is TransientClusterError


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
        "(job submit limit, user's size and/or time limits)",
        "sbatch: error: Batch job submission failed: job queue full",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "sbatch: error: AssocMaxSubmitJobLimit",
    ],
)
def test_a_limit_keeps_the_trial_queued(text: str) -> None:
    """S13: never the trial's failure."""
    assert type(submission_error(text)) is LimitClusterError


@pytest.mark.parametrize(
    "text",
    [
        "allocation failure: Invalid account or account/partition combination specified",
        "sbatch: error: invalid partition specified: nope",
        "allocation failure: Invalid qos specification",
        "sbatch: error: Invalid generic resource (gres) specification",
        "allocation failure: Invalid feature specification",
        "allocation failure: Requested node configuration is not available",
        "allocation failure: Requested time limit is invalid (missing or exceeds some limit)",
        "sbatch: error: our site wants --project",
    ],
)
def test_what_can_never_work_is_permanent_and_carries_the_sites_text(text: str) -> None:
    error = submission_error(text)
    assert type(error) is PermanentClusterError
    assert text in str(error)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    assert all(isinstance(job_class, JobClass) for job_class in (JobClass.of(text), JobClass.of("PENDING", text)))
    assert "\n" not in str(submission_error(text))
    for parse in (parse_squeue, parse_sacct):
        assert all(job_id.isdecimal() and job.job_id == job_id for job_id, job in parse(text).items())


@settings(max_examples=100, deadline=None)
@given(st.text() | st.text(alphabet="12;\n "))
def test_a_job_id_is_a_number_or_an_error_of_one_line(text: str) -> None:
    try:
        job_id = parse_job_id(text)
    except ClusterError as error:
        job_id = "0" if "\n" not in str(error) else "the error has two lines"
    assert job_id.isdecimal()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="7|. \n%:-_[]NaU0+", max_size=12), max_size=12))
def test_no_table_breaks_a_parser(cells: list[str]) -> None:
    for text in (
        "|".join(cells),
        "  ".join(cells),
        squeue_line(start="nan", end="inf", restarts="-1") + "".join(cells),
    ):
        for parse in (parse_squeue, parse_sacct):
            for job in parse(text).values():
                assert job.started is None or job.started > 0
                assert job.restarts >= 0
