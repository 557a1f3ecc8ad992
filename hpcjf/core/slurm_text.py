"""What Slurm says, read: job states, the tables of squeue and sacct, the errors of sbatch. Pure text in, values out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hpcjf.errors import ClusterError, LimitClusterError, PermanentClusterError, TransientClusterError


class JobClass(StrEnum):
    """What a scheduler state means for us; the whole table is ``_STATES``."""

    PENDING = "pending"
    RUNNING = "running"
    HELD = "held"
    """Waits for a person: the user must be told."""
    INFRASTRUCTURE = "infrastructure"
    WALL_TIME = "wall_time"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    """The scheduler's word only: a success needs a valid result file besides."""
    UNKNOWN = "unknown"
    """Never "done": after a grace time the files decide."""

    @property
    def active(self) -> bool:
        """Running, or on its way there without anybody's help."""
        return self in (JobClass.PENDING, JobClass.RUNNING)

    @property
    def ended(self) -> bool:
        """The scheduler will not start this job again under the same id."""
        return not self.active and self not in (JobClass.HELD, JobClass.UNKNOWN)

    @classmethod
    def of(cls, state: str, reason: str = "") -> JobClass:
        """The class of a raw state such as ``CANCELLED by 1000``; a pending reason that never clears means held."""
        words = state.upper().split()
        job_class = _STATES.get(words[0].rstrip("+") if words else "", cls.UNKNOWN)
        return cls.HELD if job_class is cls.PENDING and _never_clears(reason) else job_class


_STATES = {
    state: job_class
    for job_class, states in {
        JobClass.PENDING: "PENDING REQUEUED REQUEUE_FED",
        JobClass.RUNNING: "CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED RESIZING SIGNALING STAGE_OUT",
        JobClass.HELD: "REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD",
        JobClass.INFRASTRUCTURE: "PREEMPTED NODE_FAIL BOOT_FAIL REVOKED LAUNCH_FAILED RECONFIG_FAIL",
        JobClass.WALL_TIME: "TIMEOUT DEADLINE",
        JobClass.OUT_OF_MEMORY: "OUT_OF_MEMORY",
        JobClass.FAILED: "FAILED",
        JobClass.CANCELLED: "CANCELLED",
        JobClass.FINISHED: "COMPLETED",
    }.items()
    for state in states.split()
}

# Compared in lower case and without punctuation: squeue prints the same reason as words or as one name.
_HELD_REASONS = (
    r"jobheld(user|admin)|heldstate|jobholdmaxrequeue|maxrequeue|.*launchfailedrequeuedheld|badconstraints"
    r"|dependencyneversatisfied|partition(node|time)limit|invalid(account|qos)|(account|qos)notallowed"
    r"|(assoc|qos)\w*perjob(limit)?|reservationdeleted|reservationinvalid|deadline"
)


def _never_clears(reason: str) -> bool:
    return re.fullmatch(_HELD_REASONS, re.sub(r"[^a-z]", "", reason.lower())) is not None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job as its scheduler describes it. ``started`` and ``ended`` are epoch seconds.

    ``restarts`` counts requeues under the same id. ``cancelled_by`` is a user id, where the scheduler names one.
    """

    job_id: str
    job_class: JobClass
    state: str
    reason: str = ""
    started: float | None = None
    restarts: int = 0
    cancelled_by: str | None = None
    name: str = ""
    ended: float | None = None


SQUEUE_FORMAT = "JobID:64,Name:256,State:32,StartTime:32,EndTime:32,RestartCnt:16,Reason:256"
"""For ``squeue --Format``; times as epoch seconds (SLURM_TIME_FORMAT=%s). Only the last column may hold blanks."""

SACCT_FORMAT = "JobIDRaw,JobName,Start,End,ExitCode,State"
"""For ``sacct --parsable2 --format``; times as epoch seconds."""


_UNNAMED = "allocation"
"""What sacct calls a job for some seconds, when the record of its end came before that of its start."""


def parse_squeue(text: str) -> dict[str, JobStatus]:
    """Jobs by id. Lines that cannot be read are left out: such a job counts as not seen."""
    found = {}
    for line in text.splitlines():
        columns = line.split(maxsplit=6)
        if len(columns) < 6 or not columns[0].isdecimal():
            continue
        job_id, name, state, start, end, restarts = columns[:6]
        reason = columns[6].strip() if len(columns) > 6 else ""
        job_class = JobClass.of(state, reason)
        found[job_id] = JobStatus(
            job_id=job_id,
            job_class=job_class,
            state=state,
            reason="" if reason == "None" else reason,
            # of a pending job, squeue prints when it expects to start it
            started=None if job_class in (JobClass.PENDING, JobClass.HELD) else _epoch(start),
            restarts=int(restarts) if restarts.isdecimal() else 0,
            name=name,
            ended=_epoch(end) if job_class.ended else None,
        )
    return found


def parse_sacct(text: str) -> dict[str, JobStatus]:
    """Jobs by id, out of memory included, of which only a step's row may tell.

    A batch script whose step is killed for memory ends FAILED; the step says OUT_OF_MEMORY, exit code 0:125.
    """
    found: dict[str, JobStatus] = {}
    starved = set()
    for columns in _sacct_rows(text):
        raw_id, name, start, end, exit_code, state = columns
        job_id, _, step = raw_id.partition(".")
        if not job_id.isdecimal():
            continue
        if JobClass.of(state) is JobClass.OUT_OF_MEMORY or exit_code == "0:125":
            starved.add(job_id)
        if not step:
            found[job_id] = _accounted(job_id, name, start, end, exit_code, state)
    return {job_id: _starved(job) if job_id in starved else job for job_id, job in found.items()}


def _sacct_rows(text: str) -> Iterator[list[str]]:
    # a job name may hold the separator: the four last columns are read from the right
    for line in text.splitlines():
        head, _, tail = line.partition("|")
        columns = [head, *tail.rsplit("|", 4)]
        if len(columns) == 6:
            yield columns


def _accounted(job_id: str, name: str, start: str, end: str, exit_code: str, state: str) -> JobStatus:
    job_class = JobClass.of(state)
    by = re.match(r"CANCELLED by (\S+)", state)
    return JobStatus(
        job_id=job_id,
        job_class=job_class,
        state=state,
        reason="" if exit_code in ("0:0", "") else f"exit code {exit_code}",
        started=_epoch(start),
        cancelled_by=by[1] if by else None,
        name="" if name == _UNNAMED else name,
        ended=_epoch(end) if job_class.ended else None,
    )


def _starved(job: JobStatus) -> JobStatus:
    if job.job_class is not JobClass.FAILED:
        return job
    return JobStatus(
        job.job_id,
        JobClass.OUT_OF_MEMORY,
        job.state,
        "a step was killed for memory",
        job.started,
        job.restarts,
        name=job.name,
        ended=job.ended,
    )


def _epoch(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # N/A, Unknown, None
        return None
    return value if value > 0 and math.isfinite(value) else None


def parse_job_id(text: str) -> str:
    """The id in what ``sbatch --parsable`` printed: ``id`` or ``id;cluster`` on the last line.

    Raises TransientClusterError where there is none: the job may exist, its name must be looked up.
    """
    lines = text.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    job_id = last.partition(";")[0].strip()
    if not re.fullmatch(r"[0-9]{1,18}", job_id):
        raise TransientClusterError(
            f"sbatch printed no job id: {text.strip()[-200:]!r}", where="sbatch", fix="the job is looked up by its name"
        )
    return job_id


_LIMIT = (
    r"violates accounting/qos policy|job queue full|limit on number of jobs|MaxSubmit|MaxJobs(PerUser|PerAccount|Limit)"
    r"|(QOS|Assoc)\w*(Submit|Jobs)\w*Limit|QOSGrp|AssocGrp|job submit limit|exceeded.*submit"
)
_TRANSIENT = (
    r"socket timed out|unable to contact slurm controller|zero bytes were transmitted or received"
    r"|temporarily unable to accept job|connection (refused|timed out|reset)|transport endpoint|slurmctld is not"
    r"|communication connection failure|unexpected message|controller .*(not responding|in standby)"
    r"|resource temporarily unavailable|try again|plugin initialization failed: munge|munge|expired credential"
    r"|protocol authentication error|database connection|slurmdbd"
)


def submission_error(text: str, *, where: str = "sbatch") -> ClusterError:
    """The error that a scheduler's text means; what is not known to clear is permanent and carries the text."""
    said = " ".join(text.split())[-1000:] or "no message"
    if re.search(_LIMIT, said, re.IGNORECASE):
        return LimitClusterError(said, where=where, fix="the trial stays queued here and is submitted again later")
    if re.search(_TRANSIENT, said, re.IGNORECASE):
        return TransientClusterError(said, where=where, fix="nothing is lost; it is tried again")
    return PermanentClusterError(said, where=where, fix="correct the study's cluster section")
