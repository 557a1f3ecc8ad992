"""Jobs on Slurm: submitit writes pickle and batch script, this module talks to the scheduler.

Taken from submitit: the pickled call, the text of the batch script, the program that runs in the job. Not taken:
its watcher (a forced sacct for each new job), its results, its requeueing, its defaults for wckey and time.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import submitit

from hpcjf.cluster.base import JobRequest
from hpcjf.cluster.command import run_command
from hpcjf.cluster.job import MANY, PICKLE, write_call
from hpcjf.cluster.template import directive_lines, render
from hpcjf.core.slurm_directives import directives, omitted
from hpcjf.core.slurm_text import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    JobClass,
    JobStatus,
    parse_job_id,
    parse_sacct,
    parse_squeue,
    submission_error,
)
from hpcjf.errors import PermanentClusterError, TransientClusterError
from hpcjf.study import Resources

_LOOK_BACK = "now-30days"
_SETTLE_SECONDS = 60.0
"""How long accounting may lag behind an end that squeue already shows."""
_EXPLAINS = {
    JobClass.FAILED: (JobClass.FAILED, JobClass.OUT_OF_MEMORY),
    JobClass.CANCELLED: (JobClass.CANCELLED,),
}
"""Ends that squeue shows in part only, and what accounts may say of them. Anything else there is an older record."""
_GONE = r"invalid job id specified|already completing or completed|^\s*$"


class SlurmCluster:
    """The user's own jobs on the cluster that answers here."""

    name = "slurm"
    slots: int | None = None

    def __init__(self, timeout: float = 60.0) -> None:
        """``timeout``: seconds that one scheduler command may take."""
        self._timeout = timeout
        self._user = str(os.getuid())

    def submit(self, request: JobRequest) -> str:
        check_folder(request.folder)
        write_call(request.folder, request.entry, request.argument)
        return _Executor(request, self._timeout).submit_call()

    def find(self, job_name: str) -> str | None:
        named = self._squeue([f"--name={job_name}"]) or self._sacct([f"--name={job_name}"]) or {}
        return max((job.job_id for job in named.values() if job.name == job_name), key=int, default=None)

    def poll(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """One squeue; and one sacct where a job has left squeue or has ended in a way that only sacct explains."""
        if not job_ids:
            return {}
        queue = self._squeue([])
        seen = {job_id: queue[job_id] for job_id in job_ids if job_id in queue}
        asked = [job_id for job_id in job_ids if job_id not in seen or seen[job_id].job_class in _EXPLAINS]
        accounts = self._accounts(asked) if asked else None
        if accounts is None:
            return seen
        now = time.time()
        merged = {job_id: _merged(seen.get(job_id), accounts.get(job_id), now) for job_id in asked}
        return seen | {job_id: status for job_id, status in merged.items() if status is not None}

    def _accounts(self, job_ids: Sequence[str]) -> dict[str, JobStatus] | None:
        try:
            return self._sacct([f"--jobs={','.join(job_ids)}"])
        except TransientClusterError:  # its database may be down for hours: squeue must do
            return None

    def cancel(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        answer = run_command(["scancel", *job_ids], timeout=self._timeout)
        faults = [line for line in answer.err.splitlines() if not re.search(_GONE, line, re.IGNORECASE)]
        if answer.code and faults:
            raise submission_error(" ".join(faults), where="scancel")

    def check(self, resources: Resources) -> None:
        """Asks the scheduler itself, without submitting; its own text is in the error."""
        script = render("directives.sbatch", {"directives": directive_lines(resources)})
        answer = run_command(["sbatch", "--test-only"], timeout=self._timeout, text=script)
        if answer.code:
            raise submission_error(answer.err, where="sbatch --test-only")

    def _squeue(self, selection: Sequence[str]) -> dict[str, JobStatus]:
        argv = ["squeue", "--noheader", "--states=all", f"--user={self._user}", f"--Format={SQUEUE_FORMAT}", *selection]
        answer = run_command(argv, timeout=self._timeout, epoch_times=True)
        if answer.code:
            raise TransientClusterError(_said(answer.err), where="squeue", fix="it is asked again later")
        return parse_squeue(answer.out)

    def _sacct(self, selection: Sequence[str]) -> dict[str, JobStatus] | None:
        """None where the site keeps no accounts."""
        argv = ["sacct", "--noheader", "--parsable2", f"--user={self._user}", f"--starttime={_LOOK_BACK}"]
        answer = run_command([*argv, f"--format={SACCT_FORMAT}", *selection], timeout=self._timeout, epoch_times=True)
        if "accounting storage is disabled" in answer.err.lower():
            return None
        if answer.code:
            raise TransientClusterError(_said(answer.err), where="sacct", fix="it is asked again later")
        return parse_sacct(answer.out)


def _said(text: str) -> str:
    return " ".join(text.split())[-500:] or "failed without a message"


def _merged(queued: JobStatus | None, accounted: JobStatus | None, now: float) -> JobStatus | None:
    """One status from both sources; None where neither knows the job."""
    if queued is None:
        if accounted is None or accounted.job_class.ended:
            return accounted
        return replace(accounted, job_class=JobClass.UNKNOWN)  # gone from squeue: accounts that say RUNNING are stale
    if accounted is not None and accounted.job_class in _EXPLAINS[queued.job_class]:
        return replace(accounted, restarts=queued.restarts, started=queued.started)
    if queued.ended is not None and now - queued.ended < _SETTLE_SECONDS:
        return replace(queued, job_class=JobClass.RUNNING, reason="waiting for its accounts")
    return queued


def check_folder(folder: Path) -> None:
    """Raises PermanentClusterError on a path that a batch script cannot name."""
    # sbatch and submitit expand %j and the like in paths; the rest cannot stand in a directive
    if re.search(r"[%\\`\"'$\x00-\x1f\x7f]", str(folder)):
        raise PermanentClusterError(
            "the path holds a percent sign, quote, backslash, dollar sign or control character",
            where=repr(str(folder)),
            fix="choose another folder for the run",
        )


class _Executor(submitit.SlurmExecutor):
    """Writes the batch script of one job. Its first lines put the pickled call where submitit looks for it."""

    def __init__(self, request: JobRequest, timeout: float) -> None:
        super().__init__(request.folder, max_num_timeout=MANY)
        self._timeout = timeout
        self._omitted = omitted(request.resources)
        chosen = directives(request.resources)
        cores = chosen.get("cpus-per-task")
        self.update_parameters(
            job_name=request.name,
            signal_delay_s=request.signal_seconds,
            setup=[*self._own_setup(cores or "1"), *(request.resources.setup or ())],
            srun_args=self._srun_arguments(cores, several="ntasks-per-node" in chosen or "nodes" in chosen),
            additional_parameters={name: value or True for name, value in chosen.items()},
        )

    @classmethod
    def affinity(cls) -> int:
        return 2  # detect() has asked the cluster already

    @staticmethod
    def _srun_arguments(cores: str | None, *, several: bool) -> list[str] | None:
        """The number of cores, which since Slurm 22.05 srun no longer takes over from sbatch; and that the end of one
        process by a fault ends the others, which would wait for it."""
        found = [f"--cpus-per-task={cores}"] if cores else []
        if several:
            found.append("--kill-on-bad-exit=1")
        return found or None

    def _own_setup(self, cores: str) -> list[str]:
        stem = f"{shlex.quote(str(self.folder))}/${{SLURM_JOB_ID}}"
        return [
            f"export OMP_NUM_THREADS={shlex.quote(cores)}",
            f"ln -sfn {PICKLE} {stem}_submitted.pkl",
            f"rm -f {stem}_*_result.pkl.save_tmp",  # left by a killed predecessor, it would make this one fail
        ]

    def submit_call(self) -> str:
        """Not submitit's own way: no watcher, which asks sacct for each job, and a time limit on sbatch."""
        script = self.folder / "submission.sh"
        script.write_text(self._make_submission_file_text(self._submitit_command_str, ""), encoding="utf-8")
        answer = run_command(["sbatch", "--parsable", str(script)], timeout=self._timeout)
        if answer.code:
            raise submission_error(answer.err)
        return parse_job_id(answer.out)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        lines = super()._make_submission_file_text(command, uid).split("\n")
        return "\n".join(line for line in lines if _directive(line) not in self._omitted)


def _directive(line: str) -> str | None:
    found = re.match(r"#SBATCH --([a-z-]+)", line)
    return found[1] if found else None
