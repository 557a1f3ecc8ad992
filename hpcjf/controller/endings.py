"""How an attempt ended: its result file decides, else what the scheduler says after a grace time, else nothing yet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcjf.cluster.base import JobClass, JobStatus
from hpcjf.controller.watch import Rows, last_score
from hpcjf.core.lifecycle import Attempt, Ending
from hpcjf.core.stopping import decide
from hpcjf.store.messages import AttemptResult
from hpcjf.store.traces import final_kl
from hpcjf.study import StoppingSection
from hpcjf.types import Cause

_CAUSES = {
    JobClass.FINISHED: Cause.LOST,
    JobClass.UNKNOWN: Cause.LOST,
    JobClass.FAILED: Cause.FAILED,
    JobClass.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
    JobClass.WALL_TIME: Cause.TIMED_OUT,
    JobClass.CANCELLED: Cause.CANCELLED_BY_OTHER,
}
_INTERRUPTIONS = frozenset({JobClass.INFRASTRUCTURE, JobClass.WALL_TIME, JobClass.CANCELLED})
_CAPPED = frozenset({Cause.TIMED_OUT, Cause.LOST, Cause.LAUNCH_FAILURE})
FREE_RETRIES = 50
"""Even causes that cost nothing end at some point: a cluster that kills a job this often is broken."""
_LATE = 0.7


def from_result(attempt: Attempt, result: AttemptResult, status: JobStatus | None, now: float) -> Ending:
    """The worker's own word. Of an interruption it only knows the signal: we or the scheduler know the reason."""
    cause = result.cause
    if cause.infrastructure:
        explained = status is not None and status.job_class in _INTERRUPTIONS
        cause = attempt.stop or (_cause(status) if explained and status else cause)
    return Ending(
        cause, now, result.step, result.start_step, result.score, result.seconds, result.startup_seconds, result.detail
    )


def from_scheduler(attempt: Attempt, status: JobStatus, rows: Rows | None, now: float) -> Ending:
    """No result file will come: cause from the scheduler, step and score from the trace."""
    cause = attempt.stop or _cause(status)
    step = start = 0
    seconds, score = 0.0, None
    if rows is not None:
        step, start = int(rows[-1]["step"]), int(rows[0]["step"]) - 1
        seconds, score = float(rows[-1]["time"] - rows[0]["time"]), last_score(rows)
    began = attempt.started or attempt.submitted or now
    detail = f"job {status.job_id} ended as {status.state or 'unknown'} without a result"
    return Ending(cause, now, step, start, score, seconds, max(0.0, now - began - seconds), detail)


def as_of_rule(ending: Ending, rows: Rows, stopping: StoppingSection) -> Ending:
    """The ending at the row where the stopping rule fires, however much later the job ended.

    ``rows`` are those of the whole training up to the ending. The score is the newest evaluation up to the row, None
    without one; the times stay the job's.
    """
    decision = decide(rows, stopping)
    if decision is None:
        return ending if ending.cause is Cause.COMPLETED else replace(ending, score=last_score(rows))
    detail = f"{decision.why}; the job {ending.cause} at step {ending.step}"
    score = last_score(rows[rows["step"] <= decision.step])
    return replace(ending, cause=decision.cause, step=decision.step, score=score, detail=detail)


def measured(ending: Ending, rows: Rows) -> Ending:
    """With means over the training up to the ending: of the last five finite KL values, of the tokens of a step, and of
    the validation scores in the last three tenths.
    """
    rows = rows[rows["step"] <= ending.step]
    return replace(
        ending,
        kl=final_kl(rows),
        tokens=float(rows["tokens"].mean()) if len(rows) else None,
        late_score=late_score(rows, ending.step),
    )


def late_score(rows: Rows, steps: int) -> float | None:
    """Mean of the validation scores in the last three tenths of ``steps``, where ``rows`` end; None without any."""
    late = rows["eval_score"][rows["step"] > _LATE * steps]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else None


def _cause(status: JobStatus) -> Cause:
    if status.job_class is JobClass.INFRASTRUCTURE:
        if status.state.startswith("PREEMPTED"):
            return Cause.PREEMPTED
        return Cause.LAUNCH_FAILURE if "LAUNCH" in status.state else Cause.NODE_FAILURE
    return _CAUSES[status.job_class]


def retry(attempts: list[Attempt], cause: Cause, capped: int) -> bool:
    """Whether the trial goes on in a new attempt: free after preemption and node loss, capped after the rest."""
    if not cause.infrastructure:
        return False
    if cause in (Cause.PREEMPTED, Cause.NODE_FAILURE, Cause.CANCELLED):
        return len(attempts) <= FREE_RETRIES
    return sum(1 for a in attempts if a.ending and a.ending.cause in _CAPPED) < capped
