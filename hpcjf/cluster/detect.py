"""Which scheduler to use here, and why."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from hpcjf.cluster.base import Cluster
from hpcjf.cluster.command import run_command
from hpcjf.cluster.local import LocalCluster
from hpcjf.cluster.slurm import SlurmCluster
from hpcjf.errors import PermanentClusterError, TransientClusterError


def detect(
    executor: Literal["auto", "slurm", "local"], records: Path, *, slots: int | None = None
) -> tuple[Cluster, str]:
    """The cluster and one line that says why.

    ``records`` is a folder of the study for local jobs, ``slots`` how many of them run at a time (default: cores).
    Raises PermanentClusterError where Slurm is asked for and not set up; TransientClusterError where it is set up
    but down: a study made for the cluster must not land on a login node.
    """
    if executor == "local":
        return _local(records, slots), "local processes, as cluster.executor says"
    text, answers = _ping()
    if answers:
        return SlurmCluster(), f"Slurm: {text}"
    if " is DOWN" in text:
        raise TransientClusterError(
            f"Slurm is set up here but does not answer: {text}",
            where="scontrol ping",
            fix="try again later, or set cluster.executor: local to use this machine",
        )
    if executor == "slurm":
        raise PermanentClusterError(
            f"no Slurm cluster answers: {text}",
            where="cluster.executor",
            fix="go to a login node of the cluster, or set cluster.executor: local",
        )
    return _local(records, slots), f"local processes: no Slurm cluster answers ({text})"


def _local(records: Path, slots: int | None) -> LocalCluster:
    return LocalCluster(records, slots or len(os.sched_getaffinity(0)))


def _ping() -> tuple[str, bool]:
    """What ``scontrol ping`` said, and whether one of the controllers is up."""
    missing = [name for name in ("scontrol", "sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not on PATH", False
    try:
        answer = run_command(["scontrol", "ping"], timeout=30)
    except TransientClusterError as late:
        return f"{late} is DOWN", False
    lines = [*answer.out.splitlines(), *answer.err.splitlines()]
    up = [line for line in lines if " is UP" in line]
    return (up or lines or ["no answer"])[0].strip(), bool(up)
