"""Rows and words of the report's page. Nothing here is escaped: the template does that."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import yaml

import hpcjf
from hpcjf.analysis.compare import Comparison, better
from hpcjf.analysis.load import RunData
from hpcjf.analysis.pareto import Outcome
from hpcjf.analysis.words import duration, score_text, text_of
from hpcjf.core.lifecycle import Phase, TrialState
from hpcjf.types import Purpose

PACKAGES = ("numpy", "h5py", "plotly", "jinja2", "pydantic")
LONG_SILENCE = 3600.0
"""Seconds without a journal entry after which a reader should ask whether the controller lives."""
PURPOSES = {Purpose.SEARCH: "search", Purpose.FINAL: "final, winner", Purpose.RECIPE: "final, recipe"}


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows and what it is sorted by."""

    text: str
    key: float | str
    kind: str = ""


def trial_table(run: RunData) -> tuple[list[str], list[list[Cell]]]:
    """Headings and one row a trial."""
    trials = list(run.state.trials.values())
    names = list(dict.fromkeys(name for state in trials for name in state.trial.config))
    head = ["trial", "config", *names, "model", "seed", "for", "steps", "score", "ended", "job min", "attempts", "why"]
    return head, [_row(run, state, names) for state in trials]


def front_table(model: str, found: Sequence[Outcome]) -> tuple[str, list[str], list[list[Cell]]]:
    """A sentence on the trials of one model, headings, and one row a trial on the front."""
    front = [each for each in found if each.front]
    names = list(dict.fromkeys(name for each in front for name in each.trial.config))
    beyond = sum(each.beyond for each in found)
    over = f"; {beyond} of all are over the ceiling" if beyond else ""
    words = f"On {model} {len(front)} of {len(found)} trials are on the front{over}."
    rows = [
        [
            _cell(each.trial.number),
            Cell(each.trial.config_id, each.trial.config_id, "id"),
            *(_cell(each.trial.config.get(name)) for name in names),
            _cell(each.seen.fidelity.steps),
            Cell(score_text(each.score), each.score, "number"),
            Cell(text_of(each.kl), each.kl, f"number {'bad' if each.beyond else ''}".strip()),
        ]
        for each in front
    ]
    return words, ["trial", "config", *names, "steps", "score", "KL, nats/token"], rows


def _row(run: RunData, state: TrialState, names: Sequence[str]) -> list[Cell]:
    trial = state.trial
    endings = [attempt.ending for attempt in state.attempts if attempt.ending]
    start = endings[0].start_step if endings else None
    reached = endings[-1].step if endings else _live_step(run, state)
    score = endings[-1].score if endings else None
    minutes = sum(ending.seconds + ending.startup_seconds for ending in endings) / 60
    cause = str(state.cause) if state.cause else ("running" if state.attempts else "waiting")
    return [
        _cell(trial.number),
        Cell(trial.config_id, trial.config_id, "id"),
        *(_cell(trial.config.get(name)) for name in names),
        _cell(trial.fidelity.model),
        _cell(trial.training_seed),
        _cell(PURPOSES[trial.purpose]),
        Cell(f"{text_of(start)} → {text_of(reached)} / {trial.fidelity.steps}", reached or 0, "number"),
        Cell(score_text(score), "" if score is None else score, "number"),
        Cell(cause.replace("_", " "), cause, f"cause {_tone(state)}"),
        Cell(f"{minutes:.1f}" if endings else "–", minutes, "number"),
        _cell(len(state.attempts)),
        Cell(_why(run, state), _why(run, state), "why"),
    ]


def _cell(value: float | int | str | bool | None) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text_of(value), value, "number")
    return Cell(text_of(value), "" if value is None else str(value))


def _tone(state: TrialState) -> str:
    if state.cause is None:
        return "open"
    if state.cause.stopped:
        return "stopped"
    return "good" if state.cause == "completed" else "bad"


def _live_step(run: RunData, state: TrialState) -> int | None:
    rows = run.traces.get((state.trial.number, len(state.attempts)))
    return None if rows is None else int(rows["step"][-1])


def _why(run: RunData, state: TrialState) -> str:
    """The rule's or the fault's own words; for open trials what their files say already."""
    if not state.attempts:
        return ""
    last = state.attempts[-1]
    if last.ending is None:
        waiting = run.last_result(state) is not None
        return "its result waits for a controller" if waiting else last.stop_why
    return last.stop_why or last.ending.detail


def verdict(result: Comparison, direction: str) -> tuple[str, str]:
    """One sentence for the top of the page, and its tone."""
    if result.winner_id is None:
        return "No configuration has a score yet.", "open"
    if result.winner_is_recipe:
        return "The search found nothing better than the recipe: the winner is the recipe itself.", "even"
    if result.difference is None:
        return "The winner has not been compared with the recipe on the test rows yet.", "open"
    says = better(result.difference, direction)
    if says is None:
        return "No clear difference between winner and recipe on the test rows: the interval holds 0.", "even"
    if says:
        return "The winner beats the recipe on the test rows.", "good"
    return "The winner is worse than the recipe on the test rows.", "bad"


def banner(run: RunData, now: float) -> str:
    """Says that the report is not the last word; empty once the study is done."""
    state = run.state
    silent = max(0.0, now - state.last_time) if state.last_time else 0.0
    last = f" Last journal entry {duration(silent)} ago." if state.last_time else ""
    if silent > LONG_SILENCE:
        last += " Perhaps no controller is at work any more; the study can be resumed."
    live = len(list(state.live()))
    match state.phase:
        case Phase.SEARCH:
            return f"The search is still running ({live} jobs in flight): figures are as of now.{last}"
        case Phase.FINAL:
            return f"The search is over, the final comparison is still running ({live} jobs in flight).{last}"
        case Phase.STOPPED:
            reason = f" ({state.phase_reason})" if state.phase_reason else ""
            return f"The study was stopped{reason} and can be resumed.{last}"
    return ""


def winner_yaml(run: RunData, result: Comparison) -> str:
    """The winning hyperparameters as a section that a study file takes."""
    if result.winner_config is None:
        return ""
    head = f"# {run.study.study.name}: configuration {result.winner_id}\n"
    return head + yaml.safe_dump({"algorithm": dict(result.winner_config)}, sort_keys=False)


def settings_yaml(run: RunData) -> str:
    return yaml.safe_dump(run.study.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True)


def environment(run: RunData) -> list[tuple[str, str]]:
    """What the controller wrote about itself, and what made this page."""
    rows = [(f"controller: {key}", text_of(value)) for key, value in run.state.controller.items() if key != "time"]
    rows.append(("report: hpcjf", hpcjf.__version__))
    rows.append(("report: python", platform.python_version()))
    for package in PACKAGES:
        try:
            rows.append((f"report: {package}", version(package)))
        except PackageNotFoundError:
            rows.append((f"report: {package}", "?"))
    return rows
