"""What every scheduler offers the controller: submit, find, poll, cancel, check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcjf.core.slurm_text import JobClass, JobStatus
from hpcjf.errors import PermanentClusterError
from hpcjf.study import Resources

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

__all__ = ["Cluster", "JobClass", "JobRequest", "JobStatus"]


@dataclass(frozen=True)
class JobRequest:
    """One job: ``entry`` ("package.module:function") is called with ``argument``, the path of a JSON file.

    ``name`` is unique per attempt and across the user's studies: the job is found by it after a lost answer.
    ``folder`` takes the logs and the batch script; it is made with mode 0700. ``signal_seconds`` before the
    wall-time limit the job gets SIGUSR2.
    """

    name: str
    folder: Path
    entry: str
    argument: str
    resources: Resources
    signal_seconds: int

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise PermanentClusterError(
                f"{self.name!r} cannot name a job", where="job", fix="use letters, digits, dots, dashes, underscores"
            )


class Cluster(Protocol):
    """A scheduler. Every method may raise TransientClusterError: nothing is known then, and nothing changed."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int | None:
        """Most jobs to have in flight; None where the scheduler queues by itself."""

    def submit(self, request: JobRequest) -> str:
        """The job's id. After TransientClusterError the job may exist all the same: ``find`` it first.

        Raises LimitClusterError (submit again later) or PermanentClusterError (never works as asked).
        """

    def find(self, job_name: str) -> str | None:
        """Id of the newest job of that name, ended ones included; None where the scheduler knows none."""

    def poll(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """What is known now, with one query for all jobs. An id that is missing from the answer is unknown."""

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Ask these jobs to end; those that have ended are no error. Ask again where one does not end."""

    def check(self, resources: Resources) -> None:
        """Raises PermanentClusterError where a job with these resources would be refused."""
