"""What a job runs: ``run_attempt(path of a spec)``. The result file is written last, whatever happened."""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from pathlib import Path

from hpcjf.errors import DiskFullError, FencedError, StoreError
from hpcjf.store.frozen import load_frozen
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult, AttemptSpec
from hpcjf.store.visibility import wait_visible
from hpcjf.types import Cause
from hpcjf.worker import team
from hpcjf.worker.signals import Interruption


def run_attempt(spec_path: str) -> None:
    """Run one attempt to its result file. A fenced attempt ends silently: a newer one owns the trial."""
    born = time.time()
    interruption = Interruption()
    interruption.install()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    wait_visible(Path(spec_path))
    spec = AttemptSpec.read(Path(spec_path))
    layout = RunLayout(Path(spec_path).parents[3])
    first = True
    try:
        study = load_frozen(layout)
        first = team.join()
        from hpcjf.worker.session import Session  # torch: seconds of import, after the signal handlers stand
    except Exception as error:
        traceback.print_exc()
        if not first:
            raise
        _stillborn(spec, error, time.time() - born).write(layout.attempt(spec.trial, spec.attempt).result)
        return

    session = Session(layout, study, spec, interruption, born)
    if not first:
        session.run()
        return
    fault: Exception | None = None
    try:
        result = session.run()
    except FencedError as error:
        print(f"hpcjf: {error}", file=sys.stderr)
        return
    except Exception as error:
        traceback.print_exc()
        fault = error
        result = session.result(cause_of(error), f"{type(error).__name__}: {error}"[:500])
    try:
        result.write(session.paths.result)
        print(f"hpcjf: {spec.name} {result.cause} at step {result.step}, score {result.score}", flush=True)
    finally:
        if isinstance(fault, DiskFullError):
            os._exit(1)  # HDF5 ends the process by a segmentation fault when it cleans up on a full disk


def _stillborn(spec: AttemptSpec, error: Exception, seconds: float) -> AttemptResult:
    """What keeps every job here from starting (a missing package, say) is not the configuration's doing."""
    return AttemptResult(
        name=spec.name,
        cause=Cause.LAUNCH_FAILURE,
        step=0,
        start_step=0,
        score=None,
        seconds=0.0,
        startup_seconds=seconds,
        cpu_seconds=time.process_time(),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        detail=f"{type(error).__name__}: {error}"[:500],
    )


def cause_of(error: Exception) -> Cause:
    """Files that cannot be read, written or locked are the cluster's doing; memory and the rest the configuration's."""
    if isinstance(error, StoreError):
        return Cause.LOST
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Cause.OUT_OF_MEMORY
    return Cause.FAILED
