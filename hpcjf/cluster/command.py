"""Scheduler commands: argv lists, a time limit, and an environment in which an outer job leaves no trace."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from hpcjf.errors import PermanentClusterError, TransientClusterError

_KEPT = ("SLURM_CONF", "SLURM_JWT")


def clean_environment() -> dict[str, str]:
    """Ours without the SLURM_*, SBATCH_*, SRUN_* of a job that we may be in; what finds the cluster stays."""
    outer = ("SLURM_", "SBATCH_", "SRUN_", "SUBMITIT_")
    return {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(outer)}


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


def run_command(argv: Sequence[str], *, timeout: float, epoch_times: bool = False, text: str = "") -> Answer:
    """Run to the end with ``text`` as standard input.

    Raises TransientClusterError after ``timeout`` seconds, PermanentClusterError where there is no such command.
    """
    environment = clean_environment() | ({"SLURM_TIME_FORMAT": "%s"} if epoch_times else {})
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C at our terminal must not tear an sbatch apart
        )
    except FileNotFoundError as absent:
        raise PermanentClusterError(
            "not found on PATH", where=argv[0], fix="load the site's Slurm module, or set cluster.executor: local"
        ) from absent
    except OSError as broken:  # fork refused on a full login node
        raise TransientClusterError(str(broken), where=argv[0]) from broken
    with child:
        try:
            out, err = child.communicate(text.encode(), timeout=timeout)
        except BaseException as late:
            # the group: a site's sbatch may be a wrapper, and the real one must not submit after we gave up
            os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(late, subprocess.TimeoutExpired):
                raise
            raise TransientClusterError(f"no answer within {timeout:g} s", where=argv[0]) from late
    return Answer(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
