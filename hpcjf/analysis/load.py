"""A run directory as data: at any moment, of a living, dead or damaged study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hpcjf.core.lifecycle import Attempt, StudyState, TrialState
from hpcjf.errors import HpcjfError
from hpcjf.store.frozen import load_frozen
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import AttemptPaths, RunLayout
from hpcjf.store.messages import AttemptEvaluation, AttemptResult
from hpcjf.store.traces import Rows, read_trace
from hpcjf.study import Study

Named = TypeVar("Named", AttemptResult, AttemptEvaluation)


@dataclass(frozen=True, slots=True)
class RunData:
    """Study, replayed state, and by (trial, attempt) the traces and results that could be read.

    ``problems`` names every file or record that could not.
    """

    root: Path
    study: Study
    state: StudyState
    traces: Mapping[tuple[int, int], Rows]
    results: Mapping[tuple[int, int], AttemptResult]
    problems: tuple[str, ...]
    evaluations: Mapping[tuple[int, int], AttemptEvaluation] = field(default_factory=dict)

    def last_result(self, trial: TrialState) -> AttemptResult | None:
        """The newest attempt's result; the journal may not have taken it in yet."""
        if not trial.attempts:
            return None
        return self.results.get((trial.trial.number, trial.attempts[-1].number))


def load_run(root: Path) -> RunData:
    """Raises StoreError where ``root`` holds no readable study; anything else that is damaged is a problem."""
    layout = RunLayout(root)
    study = load_frozen(layout)
    problems: list[str] = []
    state = _replay(layout, problems)
    traces: dict[tuple[int, int], Rows] = {}
    results: dict[tuple[int, int], AttemptResult] = {}
    evaluations: dict[tuple[int, int], AttemptEvaluation] = {}
    for attempt in [attempt for trial in state.trials.values() for attempt in trial.attempts]:
        key, paths = (attempt.trial, attempt.number), layout.attempt(attempt.trial, attempt.number)
        trace = _trace(root, attempt, paths, problems)
        result = _message(AttemptResult, paths.result, root, attempt, problems)
        evaluation = _message(AttemptEvaluation, paths.evaluation, root, attempt, problems)
        if trace is not None:
            traces[key] = trace
        if result is not None:
            results[key] = result
        if evaluation is not None:
            evaluations[key] = evaluation
    return RunData(root, study, state, traces, results, tuple(problems), evaluations)


def _replay(layout: RunLayout, problems: list[str]) -> StudyState:
    try:
        events, damaged = read_journal(layout.journal)
    except HpcjfError as error:
        problems.append(_relative(str(error), layout.root))
        return StudyState()
    problems.extend(_relative(problem, layout.root) for problem in damaged)
    return _apply(events, problems)


def _apply(events: Iterable[Mapping[str, Any]], problems: list[str]) -> StudyState:
    """A record that was lost takes down the ones that build on it, not the report."""
    state = StudyState()
    for number, event in enumerate(events, start=1):
        try:
            state.apply(event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            kind = event.get("kind", "?")
            problems.append(f"journal event {number} ({kind}) makes no sense here: {type(error).__name__} {error}")
    return state


def _trace(root: Path, attempt: Attempt, paths: AttemptPaths, problems: list[str]) -> Rows | None:
    try:
        trace = read_trace(paths.trace)
    except HpcjfError as error:
        problems.append(_relative(str(error), root))
        return None
    ending = attempt.ending
    if ending is not None and ending.step > ending.start_step:
        readable = int(trace["step"][-1]) if trace.size else ending.start_step
        if readable < ending.step:
            what = f"readable up to step {readable} only; the attempt reached {ending.step}"
            problems.append(_relative(f"{paths.trace}: {what}", root))
    return trace if trace.size else None


def _message(kind: type[Named], path: Path, root: Path, attempt: Attempt, problems: list[str]) -> Named | None:
    if not path.exists():
        return None
    try:
        message = kind.read(path)
    except HpcjfError as error:
        problems.append(_relative(str(error), root))
        return None
    if message.name != attempt.name:
        problems.append(_relative(f"{path}: belongs to {message.name!r}, not to {attempt.name!r}", root))
        return None
    return message


def _relative(text: str, root: Path) -> str:
    """Names of files as seen from the run directory: a report is passed on."""
    return text.replace(f"{root}/", "")
