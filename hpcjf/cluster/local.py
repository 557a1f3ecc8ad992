"""Jobs as processes of this machine, which outlive the controller and are found again by their name."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import submitit

from hpcjf.cluster.base import JobRequest
from hpcjf.cluster.command import clean_environment
from hpcjf.cluster.job import MANY, write_call
from hpcjf.cluster.processes import session_members, start_token
from hpcjf.cluster.records import Record, Records
from hpcjf.core.slurm_text import JobClass, JobStatus
from hpcjf.errors import LimitClusterError, PermanentClusterError, TransientClusterError
from hpcjf.study import Resources

_START_SECONDS = 60.0
"""How long Python may take to come up and record the job."""
_MARK = "HPCJF_JOB"


class LocalCluster:
    """At most ``slots`` jobs at a time. Job ids are ``pid:start token``; ``records`` is the study's own folder.

    ``time_minutes``, ``setup`` and ``processes`` are honoured, ``cpus`` over the processes sets OMP_NUM_THREADS,
    ``gpus: 0`` hides the GPUs; other resources are not rationed.
    """

    name = "local"

    def __init__(self, records: Path, slots: int) -> None:
        self.slots: int | None = slots
        self._slots = slots
        self._records = Records(records)
        self._children: list[subprocess.Popen[bytes]] = []
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()

    def submit(self, request: JobRequest) -> str:
        """A name that has been submitted before gives its first job's id: nothing starts twice."""
        known = self.find(request.name)
        if known is not None:
            return known
        running = sum(self._running(name) for name in self._records.names())
        if running >= self._slots:
            raise LimitClusterError(f"all {self._slots} slots are taken", where="local", fix="it is tried again later")
        write_call(request.folder, request.entry, request.argument)
        child = _launch(request, self._records.folder)
        self._children.append(child)
        return self._started(request, child)

    def find(self, job_name: str) -> str | None:
        record = self._records.read(job_name, "job")
        return None if record is None else str(record["job_id"])

    def poll(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        self._reap()
        named = {job_id: name for job_id in job_ids if (name := self._name_of(job_id)) is not None}
        return {job_id: self._status(job_id, name) for job_id, name in named.items()}

    def cancel(self, job_ids: Sequence[str]) -> None:
        """SIGTERM to the job and its children; SIGKILL where that has been asked before."""
        for job_id in job_ids:
            name = self._name_of(job_id)
            if name is None or not self._running(name):
                continue
            first = self._records.claim(name, "cancel", {"user": os.getuid()})
            for pid in session_members(_pid(job_id), f"{_MARK}={name}"):
                _send(pid, signal.SIGTERM if first else signal.SIGKILL)

    def check(self, resources: Resources) -> None:
        """This machine refuses several nodes, and nothing else."""
        if (resources.nodes or 1) > 1:
            what = f"local jobs have one node, and the study asks for {resources.nodes}"
            raise PermanentClusterError(what, where="cluster", fix="leave nodes out, or run on Slurm")

    def _started(self, request: JobRequest, child: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while (job_id := self.find(request.name)) is None:
            if child.poll() is not None and self.find(request.name) is None:
                said = (request.folder / "launch.log").read_text(encoding="utf-8", errors="replace")
                raise PermanentClusterError(f"the job did not start: {said[-500:]}", where=request.name)
            if time.monotonic() > deadline:
                raise TransientClusterError(
                    f"not up after {_START_SECONDS:g} s", where=request.name, fix="the job is looked up by its name"
                )
            time.sleep(0.01)
        return job_id

    def _status(self, job_id: str, name: str) -> JobStatus:
        record = self._records.read(name, "job") or {}
        started = record.get("started")
        if self._running(name):
            return JobStatus(job_id, JobClass.RUNNING, "RUNNING", started=started, name=name)
        end = self._records.read(name, "end") or _vanished(record)
        cancel = self._records.read(name, "cancel")
        by = None if cancel is None else str(cancel["user"])
        state = end["state"] if by is None else f"CANCELLED by {by}"
        job_class = JobClass.of(state)
        if job_class.ended:
            self._ended.add(name)
        return JobStatus(
            job_id, job_class, state, end["reason"], started, cancelled_by=by, name=name, ended=end.get("ended")
        )

    def _running(self, name: str) -> bool:
        """Also true of children that have lost their parent: they may still write."""
        record = None if name in self._ended else self._records.read(name, "job")
        if record is None:
            return False
        job_id = str(record["job_id"])
        token = start_token(_pid(job_id))
        if token is not None:
            return job_id == f"{_pid(job_id)}:{token}"
        if self._records.read(name, "end") is not None:  # written by the parent, which then killed the rest
            self._ended.add(name)
            return False
        return bool(session_members(_pid(job_id), f"{_MARK}={name}"))

    def _name_of(self, job_id: str) -> str | None:
        if job_id not in self._names:
            self._names = {found: name for name in self._records.names() if (found := self.find(name)) is not None}
        return self._names.get(job_id)

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _vanished(record: Record) -> Record:
    host = record.get("host")
    if host != socket.gethostname():
        return {"state": "UNKNOWN", "reason": f"started on {host}, which only that machine can judge"}
    return {"state": "NODE_FAIL", "reason": "the process is gone: killed, or the machine restarted"}


def _pid(job_id: str) -> int:
    return int(job_id.partition(":")[0])


def _send(pid: int, signum: signal.Signals) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def _launch(request: JobRequest, records: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "hpcjf.cluster.launch", str(records.absolute()), request.name]
    with open(request.folder / "launch.log", "ab") as log:
        return subprocess.Popen(
            [*argv, str(request.folder.absolute())],
            env=_environment(request),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C and the terminal's end are the controller's, not the job's
        )


def _environment(request: JobRequest) -> dict[str, str]:
    """What submitit's parent process reads, around the command that its executor composes."""
    resources = request.resources
    command = submitit.LocalExecutor(request.folder)._submitit_command_str
    threads = max(1, (resources.cpus or 1) // resources.tasks)
    script = [f"export OMP_NUM_THREADS={threads}", *(resources.setup or ()), f"exec {command}"]
    seconds = int((resources.time_minutes or MANY) * 60)
    environment = clean_environment() | {
        _MARK: request.name,
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_COMMAND": shlex.join(["bash", "-c", "\n".join(script)]),
        "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
        "SUBMITIT_LOCAL_NODEID": "0",
        "SUBMITIT_LOCAL_NTASKS": str(resources.tasks),
        "SUBMITIT_LOCAL_SIGNAL_DELAY_S": str(request.signal_seconds),
        "SUBMITIT_LOCAL_TIMEOUT_S": str(seconds),
        "SUBMITIT_LOCAL_WITH_SHELL": "",
        "SUBMITIT_STDERR_TO_STDOUT": "",
    }
    return environment | ({"CUDA_VISIBLE_DEVICES": ""} if resources.gpus == 0 else {})
