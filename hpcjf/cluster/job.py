"""The one function that is sent into a job: it imports the real entry there, so that only names travel."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from submitit.core.utils import DelayedSubmission

from hpcjf.errors import PermanentClusterError

PICKLE = "submitted.pkl"
MANY = 1_000_000_000
"""For submitit's own allowances (minutes, time-outs): we never want it to judge a job by them."""

_ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


def call(entry: str, argument: str) -> None:
    """Run ``entry`` ("package.module:function") with ``argument``; what it returns is dropped."""
    module, _, function = entry.partition(":")
    getattr(importlib.import_module(module), function)(argument)


def write_call(folder: Path, entry: str, argument: str) -> None:
    """Put the pickled call where the job will look, before the job exists: a lost answer leaves a job that works."""
    if _ENTRY.fullmatch(entry) is None:
        raise PermanentClusterError(f"{entry!r} is no entry", where="job", fix='write "package.module:function"')
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    delayed = DelayedSubmission(call, entry, argument)
    delayed.set_timeout(MANY, MANY)
    delayed.dump(folder / PICKLE)
