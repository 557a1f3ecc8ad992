"""Shows a study on a terminal: live beside the controller, or from the files alone."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hpcjf.analysis.why import explain
from hpcjf.controller.history import state_of
from hpcjf.core.lifecycle import Attempt, Phase, StudyState
from hpcjf.errors import StoreError, UserError
from hpcjf.screen import Look, PlainLines, Sight, overview, short
from hpcjf.store.frozen import load_frozen
from hpcjf.store.layout import RunLayout
from hpcjf.store.locks import Lock, start_token
from hpcjf.study import Study

if TYPE_CHECKING:
    from hpcjf.controller.loop import Controller
    from hpcjf.controller.watch import TraceWatch

REFRESH = 2.0
"""Seconds between two looks of ``status --watch``."""


@contextmanager
def shown(study: Study) -> Iterator[Callable[[Controller], None]]:
    """A function that shows the controller's study: a live table on a terminal, else one line per change."""
    console = Console()
    if not console.is_terminal:
        lines = PlainLines(console)
        yield lambda controller: lines.show(controller.state)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda controller: live.update(overview(study, controller.state, _look(controller.watch)), refresh=True)


def show_status(root: Path) -> None:
    """One look at a run directory."""
    layout = RunLayout(root)
    study, (state, problems) = load_frozen(layout), state_of(layout)
    console = Console()
    console.print(overview(study, state, _reader(layout, study)))
    console.print(_controller_line(layout, state), soft_wrap=True)
    for problem in problems:
        console.print(Text(f"! journal: {problem}", style="yellow"))


def watch_status(root: Path) -> None:
    """Look again and again, until the study is done or Ctrl-C."""
    layout = RunLayout(root)
    study = load_frozen(layout)
    look = _reader(layout, study)
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            state, _ = state_of(layout)
            live.update(Group(overview(study, state, look), _controller_line(layout, state)), refresh=True)
            if state.phase is Phase.DONE or (state.phase is Phase.STOPPED and not any(state.live())):
                return
            try:
                time.sleep(REFRESH)
            except KeyboardInterrupt:
                return


def explain_trial(root: Path, number: int) -> None:
    """Why a trial was chosen, in words and figures."""
    layout = RunLayout(root)
    state, _ = state_of(layout)
    if number not in state.trials:
        known = f"name one of 0 to {len(state.trials) - 1}" if state.trials else "none has been chosen yet; look later"
        raise UserError(f"no trial {number}", where=str(root), fix=known)
    trial = state.trials[number].trial
    print(f"trial {number}: {trial.fidelity.model}, {trial.fidelity.steps} steps, {short(trial.config)}")
    for line in explain(trial, load_frozen(layout).search):
        print(f"  {line}")


def _reader(layout: RunLayout, study: Study) -> Look:
    @functools.cache
    def watch() -> TraceWatch:
        from hpcjf.controller.watch import TraceWatch  # numpy and h5py: only where a live attempt is looked at

        return TraceWatch(layout, study.stopping)

    def look(attempt: Attempt) -> Sight | None:
        with suppress(StoreError):  # a damaged trace hides no other trial
            watch().read(attempt)
        return _look(watch())(attempt)

    return look


def _look(watch: TraceWatch) -> Look:
    def look(attempt: Attempt) -> Sight | None:
        seen = watch.progress(attempt)
        return (seen.step, seen.reward, seen.kl, seen.score) if seen else None

    return look


def _controller_line(layout: RunLayout, state: StudyState) -> Text:
    """Who controls the study, or how to go on where nobody does."""
    if state.phase is Phase.DONE:
        return Text(f"done: {state.phase_reason}; report: {layout.report}", style="green")
    holder = Lock(layout.lock, timeout=0).holder()
    here = holder is not None and holder.host == socket.gethostname()
    if holder is None or (here and start_token(holder.pid) != holder.start):
        return Text(f"no controller runs; go on with: hpcjf run {layout.root}", style="yellow")
    return Text(f"controller, generation {state.generation}: {holder}", style="dim")
