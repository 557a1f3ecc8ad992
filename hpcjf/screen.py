"""What people see of a study in a terminal: a live table, plain lines when piped, and the status text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hpcjf.analysis.words import search_words
from hpcjf.core.lifecycle import Attempt, Phase, StudyState, TrialState
from hpcjf.study import SEARCHABLE, Study
from hpcjf.types import Cause, Config, Purpose

Look = Callable[[Attempt], "Sight | None"]
"""Where a live attempt stands, from its trace; None before its first row."""

Sight = tuple[int, float, float, float | None]
"""Step, reward, KL, newest validation score."""

_STYLES = {Cause.COMPLETED: "green", Cause.STOPPED_KL: "yellow", Cause.STOPPED_REWARD: "yellow"}


def short(config: Config) -> str:
    """A configuration in one line."""
    return " ".join(
        f"{_SHORT.get(name, name)}={value:.2g}" if isinstance(value, float) else f"{_SHORT.get(name, name)}={value}"
        for name, value in sorted(config.items(), key=lambda item: SEARCHABLE.index(item[0]))
    )


_SHORT = {
    "learning_rate": "lr",
    "lr_scheduler": "sched",
    "clip_range": "clip",
    "clip_range_high": "clip+",
    "dual_clip": "dual",
    "grad_clip": "gclip",
    "kl_coef": "kl",
    "rollouts": "G",
    "dynamic_sampling": "dyn",
    "value_coef": "vf",
    "value_clip": "vclip",
    "value_lr_factor": "vlr",
    "gae_lambda": "lam",
}
_LEFT = ("model", "", "state")


def overview(study: Study, state: StudyState, look: Look, rows: int = 24) -> RenderableType:
    """The whole study: head, newest trials, notes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("trial", "model", "steps", "", "score", "reward", "KL", "state"):
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    table.add_column("configuration")  # the one that gives way where the terminal is narrow
    known = list(state.trials.values())
    live = [t for t in known if t.cause is None]
    for trial in sorted({t.trial.number: t for t in [*known[-rows:], *live]}.values(), key=lambda t: t.trial.number):
        table.add_row(*_row(trial, look))
    parts: list[RenderableType] = [head(study, state), Text(search_words(study.search), style="dim")]
    if len(known) > rows:
        parts.append(Text(f"(the newest {rows} of {len(known)} trials, and all live ones)", style="dim"))
    parts.append(table)
    parts.extend(Text(f"! {text}", style="yellow") for _, text in state.notes[-3:])
    return Group(*parts)


def head(study: Study, state: StudyState) -> RenderableType:
    """Name, phase, progress against the limit, incumbent."""
    trials = state.of(Purpose.SEARCH)
    ended = sum(1 for t in trials if t.cause is not None)
    limit = study.search.max_trials
    done = f"{ended}/{limit}" if limit else str(ended)
    text = f"{study.study.name} · {state.phase} · {done} search trials ended"
    finals = state.of(Purpose.FINAL, Purpose.RECIPE)
    if finals:
        text += f" · {sum(1 for t in finals if t.cause is not None)}/{len(finals)} final runs ended"
    if state.phase is Phase.STOPPED:
        text += f" · {state.phase_reason}"
    line = Table.grid(padding=(0, 1))
    line.add_row(Text(text, style="bold"), ProgressBar(total=limit or max(1, len(trials)), completed=ended, width=24))
    if not state.incumbents:
        return line
    best = state.incumbents[-1]
    score = "" if best.score is None else f" (last score {best.score:.3f})"
    return Group(line, Text(f"best so far: {short(best.config)}{score}"))


def _row(known: TrialState, look: Look) -> tuple[RenderableType, ...]:
    trial, attempt = known.trial, known.live
    sight = look(attempt) if attempt else None
    ending = known.attempts[-1].ending if known.attempts else None
    step = sight[0] if sight else (ending.step if ending else 0)
    score = sight[3] if sight else (ending.score if ending else None)
    label = escape(phrase(known))
    style = _STYLES.get(known.cause, "red") if known.cause else "cyan"
    return (
        str(trial.number) + ("" if trial.purpose is Purpose.SEARCH else f" {trial.purpose}"),
        escape(trial.fidelity.model),
        f"{step}/{trial.fidelity.steps}",
        ProgressBar(total=trial.fidelity.steps, completed=step, width=12),
        "" if score is None else f"{score:.3f}",
        f"{sight[1]:.3f}" if sight else "",
        f"{sight[2]:.3g}" if sight else "",
        Text(label, style=style),
        Text(short(trial.config), no_wrap=True, overflow="ellipsis"),
    )


def phrase(known: TrialState) -> str:
    """The state of a trial in a few words."""
    if known.cause is not None:
        return str(known.cause)
    attempt = known.live
    if attempt is None:
        return "waiting" if not known.attempts else f"to be resumed after {known.attempts[-1].ending.cause}"  # type: ignore[union-attr]
    if attempt.stop:
        return f"stopping ({attempt.stop})"
    if attempt.started:
        return "running"
    return "queued" if attempt.job_id else "submitting"


class PlainLines:
    """One line per change, for pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: Counter[str] = Counter()

    def show(self, state: StudyState) -> None:
        found: Counter[str] = Counter()
        for line in changes(state):
            found[line] += 1
            # not by position: where clocks differ, a new line may stand before an old one
            if found[line] > self._seen[line]:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._seen = found


def changes(state: StudyState) -> Iterator[str]:
    """Everything that happened, in order of time, a line each."""
    happened: list[tuple[float, str]] = [(moment, f"! {text}") for moment, text in state.notes]
    happened += [(incumbent.time, f"best so far: {short(incumbent.config)}") for incumbent in state.incumbents]
    for known in state.trials.values():
        trial = known.trial
        what = f"({trial.purpose}, {trial.fidelity.model}, {trial.fidelity.steps} steps)"
        happened.append((known.time, f"trial {trial.number} {what}: {short(trial.config)} [{trial.why.get('reason')}]"))
        for attempt in known.attempts:
            happened += [(moment, f"trial {trial.number}: {text}") for moment, text in _attempt_changes(attempt)]
    happened.sort(key=lambda entry: entry[0])
    for moment, text in happened:
        yield f"{time.strftime('%H:%M:%S', time.localtime(moment))} {text}"


def _attempt_changes(attempt: Attempt) -> Iterator[tuple[float, str]]:
    if attempt.submitted:
        yield attempt.submitted, f"job {attempt.job_id} submitted as {attempt.name}"
    if attempt.stop_time:
        yield attempt.stop_time, f"{attempt.stop}: {attempt.stop_why}"
    if attempt.ending:
        ending = attempt.ending
        since = f" (resumed at {ending.start_step})" if ending.start_step else ""
        score = "" if ending.score is None else f", score {ending.score:.3f}"
        detail = f": {ending.detail}" if ending.detail else ""
        yield ending.time, f"{ending.cause} at step {ending.step}{since}{score}{detail}"
