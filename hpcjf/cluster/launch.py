"""The parent of a local job, in a session of its own: it records the job, runs it, and records how it ended.

Started by ``local`` as ``python -m hpcjf.cluster.launch RECORDS NAME FOLDER`` with submitit's SUBMITIT_LOCAL_*
environment. The record comes from here, not from the controller: it may die right after the start.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.local.local import Controller

from hpcjf.cluster.job import PICKLE
from hpcjf.cluster.processes import start_token
from hpcjf.cluster.records import Records


class _Parent(Controller):
    """submitit's parent process, which also keeps what the job's end looked like."""

    codes: Sequence[int | None] = ()
    terminated = False

    def _forward_signal(self, signum: signal.Signals, *args: Any) -> None:
        self.terminated = self.terminated or (signum == signal.SIGTERM)
        super()._forward_signal(signum, *args)

    def wait(self, freq: int = 10) -> Sequence[int | None]:
        self.codes = super().wait(freq)
        return self.codes

    def end(self) -> tuple[str, str]:
        """State in Slurm's words, and the reason."""
        if self.terminated:
            return "CANCELLED", "SIGTERM"
        if None in self.codes:
            return "TIMEOUT", f"ran {self.timeout_s} s"
        code = next(filter(None, self.codes), 0) if self.codes else 1
        if code < 0:
            return "FAILED", f"killed by {signal.Signals(-code).name}"
        return ("FAILED", f"exit code {code}") if code else ("COMPLETED", "")


def main(folder: Path, name: str, job_folder: Path) -> None:
    records, pid = Records(folder), os.getpid()
    me = {"job_id": f"{pid}:{start_token(pid)}", "host": socket.gethostname(), "started": time.time()}
    parent = _Parent(job_folder)
    if not records.claim(name, "job", me):
        return  # a job of this name has started before: never two
    link = job_folder / f"{pid}_submitted.pkl"
    link.unlink(missing_ok=True)
    link.symlink_to(PICKLE)
    try:
        parent.run(max_retry=1)
    finally:
        state, reason = parent.end()
        records.claim(name, "end", {"state": state, "reason": reason, "ended": time.time()})
        os.killpg(0, signal.SIGKILL)  # what the job has left running must not outlive it; ourselves with it


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
