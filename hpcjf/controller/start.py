"""Opens and drives a run directory: one lock, one journal, one generation number per controller."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from hpcjf.cluster.base import Cluster
from hpcjf.controller.answer import AskProcess
from hpcjf.controller.earlier import freeze_earlier
from hpcjf.controller.loop import Controller, stop_request
from hpcjf.core.lifecycle import Phase, StudyState
from hpcjf.errors import StudyError
from hpcjf.store.frozen import freeze_study, load_frozen
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.store.locks import Lock
from hpcjf.store.messages import StopRequest
from hpcjf.study import Study
from hpcjf.types import Purpose

_ADJUSTABLE = ("search", "cluster", "checkpoints", "stopping")
"""Sections that may change between two generations; anything else would mix two studies."""
_SETTLED = ("method", "deterministic", "warm_start")
"""But not these keys of ``search``."""


def _same_study(layout: RunLayout, study: Study) -> None:
    old, new = load_frozen(layout).model_dump(mode="json"), study.model_dump(mode="json")
    for model in (*old["models"], *new["models"]):
        del model["resources"]  # as the cluster section: a limit that was too small may be raised
    for key in _SETTLED:
        if old["search"][key] != new["search"][key]:
            what = f"search.{key} differs from the run's"
            raise StudyError(what, where=str(layout.root), fix="name another --run-dir")
    differing = [key for key in old if old[key] != new[key] and key not in _ADJUSTABLE]
    if differing:
        raise StudyError(
            f"holds another study: {', '.join(differing)} differ from {layout.study}",
            where=str(layout.root),
            fix="name another --run-dir, or undo the change",
        )


def _same_site(layout: RunLayout, state: StudyState, cluster: Cluster) -> None:
    """Another scheduler does not know the jobs of the last one: all would count as lost and run twice."""
    before = state.controller.get("executor", cluster.name)
    jobs = sum(1 for _, attempt in state.live() if attempt.job_id)
    if jobs and before != cluster.name:
        raise StudyError(
            f"{jobs} jobs of the executor {before} have not ended, and this is {cluster.name}",
            where=str(layout.root),
            fix=f"resume with --executor {before}, or end them first: hpcjf stop --now {layout.root}",
        )


@contextmanager
def opened(layout: RunLayout, study: Study, cluster: Cluster, lock_seconds: float = 5.0) -> Iterator[Controller]:
    """The one controller of a run directory, which is made where it does not exist.

    Limits that changed since are taken over. LockTimeoutError names a controller that already runs, StudyError says
    that the directory holds another study, or what is wrong with the warm start of a new one.
    """
    layout.create()
    state = StudyState()
    with (
        Lock(layout.lock, timeout=lock_seconds),
        JournalWriter(layout.journal, state.apply) as journal,
        closing(AskProcess(layout.root)) as ask,
    ):
        if layout.study.exists():
            _same_study(layout, study)
        else:
            freeze_earlier(layout, study)
        _same_site(layout, state, cluster)
        freeze_study(layout, study)
        controller = Controller(layout, study, cluster, journal, state, ask)
        if not state.run_id:
            controller.emit("study", run_id=secrets.token_hex(4), name=study.study.name)
        controller.emit(
            "controller",
            generation=state.generation + 1,
            host=socket.gethostname(),
            pid=os.getpid(),
            job_id=os.environ.get("SLURM_JOB_ID", ""),
            executor=cluster.name,
        )
        for problem in journal.problems:
            controller.emit("note", text=f"journal: {problem}")
        yield controller


def resume(controller: Controller) -> None:
    """Take a stopped study up again where it was."""
    controller.layout.stop_request.unlink(missing_ok=True)
    state = controller.state
    if state.phase is Phase.STOPPED:
        finals = state.of(Purpose.FINAL, Purpose.RECIPE)
        controller.emit("phase", phase=Phase.FINAL if finals else Phase.SEARCH, reason="resumed")


def drive(controller: Controller, show: Callable[[Controller], None], interrupts: Mapping[str, int]) -> str:
    """Tick until the study is over or ``interrupts["count"]`` rises. Returns ``over``, ``detached`` or ``stopped``.

    One interrupt detaches after a grace of 3 s; a second one within it stops the study and cancels its jobs.
    """
    handled = 0

    def interrupted() -> bool:
        return interrupts["count"] > handled

    while True:
        controller.tick()
        show(controller)
        if controller.over:
            return "stopped" if controller.state.phase is Phase.STOPPED else "over"
        if not _wait(controller.interval, interrupted):
            continue
        handled = interrupts["count"]
        if stop_request(controller.layout) or not _wait(3.0, interrupted):
            return "detached"
        handled = interrupts["count"]
        StopRequest(now=True).write(controller.layout.stop_request)


def _wait(seconds: float, condition: Callable[[], bool]) -> bool:
    """Sleep until the condition holds, at most ``seconds``; whether it held."""
    end = time.monotonic() + seconds
    while not condition():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(0.2, left))
    return True
