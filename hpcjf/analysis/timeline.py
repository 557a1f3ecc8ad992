"""When each job waited, started up and trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from hpcjf.analysis.load import RunData
from hpcjf.analysis.plotting import COLOURS, figure, hover_text
from hpcjf.core.lifecycle import Attempt, StudyState, TrialState

PARTS = (("waiting in the queue", "#a3a8b0"), ("start-up and shut-down", COLOURS[1]), ("training", COLOURS[0]))
MOST_LABELS = 80


@dataclass(frozen=True, slots=True)
class _Job:
    """Edges in unix seconds: submitted, job began, training began, end."""

    state: TrialState
    attempt: Attempt
    edges: tuple[float, float, float, float]
    slot: int


def job_timeline(run: RunData) -> go.Figure | None:
    """Jobs on as many lines as were in flight at once; the time axis is hours since the first one."""
    jobs = _jobs(run.state)
    if not jobs:
        return None
    origin = min(job.edges[0] for job in jobs)
    slots = 1 + max(job.slot for job in jobs)
    fig = figure(min(900, 130 + 34 * slots), barmode="overlay", bargap=0.25, hovermode="closest")
    hovers = [_hover(job) for job in jobs]
    for part, (name, colour) in enumerate(PARTS):
        fig.add_trace(
            go.Bar(
                y=[job.slot + 1 for job in jobs],
                base=[(job.edges[part] - origin) / 3600 for job in jobs],
                x=[(job.edges[part + 1] - job.edges[part]) / 3600 for job in jobs],
                orientation="h",
                name=name,
                marker={"color": colour, "line": {"width": 0}},
                customdata=hovers,
                hovertemplate="%{customdata}<extra></extra>",
                text=[str(job.state.trial.number) for job in jobs] if part == 2 and len(jobs) <= MOST_LABELS else None,
                textposition="inside",
                insidetextanchor="middle",
                textfont={"color": "#fff", "size": 11},
            )
        )
    fig.update_xaxes(title="hours since the first job was submitted", rangemode="tozero")
    fig.update_yaxes(title="job slot", autorange="reversed", dtick=max(1, slots // 12))
    return fig


def _jobs(state: StudyState) -> list[_Job]:
    """Submitted jobs, each on the first line that is free when it is submitted."""
    now = state.last_time or 0.0
    found = []
    for trial in state.trials.values():
        for attempt in trial.attempts:
            edges = _edges(attempt, now)
            if edges:
                found.append((edges, trial, attempt))
    free: list[float] = []
    jobs = []
    for edges, trial, attempt in sorted(found, key=lambda item: item[0]):
        jobs.append(_Job(trial, attempt, edges, _slot(free, edges)))
    return jobs


def _edges(attempt: Attempt, now: float) -> tuple[float, float, float, float] | None:
    """The controller sees a start only when it looks, so that an ended job's own seconds come first."""
    if attempt.submitted is None:
        return None
    submitted, ending = attempt.submitted, attempt.ending
    if ending is None:
        began = attempt.started or max(now, submitted)
        return submitted, began, began, max(now, began)
    end = max(ending.time, submitted)
    began = max(submitted, end - ending.seconds - ending.startup_seconds)
    if attempt.started is not None:
        began = max(submitted, min(began, attempt.started))
    trained = max(began, end - ending.seconds)
    return submitted, began, trained, end


def _slot(free: list[float], edges: Sequence[float]) -> int:
    for slot, since in enumerate(free):
        if since <= edges[0]:
            free[slot] = edges[-1]
            return slot
    free.append(edges[-1])
    return len(free) - 1


def _hover(job: _Job) -> str:
    waited, began, trained = (job.edges[part + 1] - job.edges[part] for part in range(3))
    ending = job.attempt.ending
    how = f"{ending.cause} at step {ending.step}" if ending else "still in flight"
    times = f"waited {_duration(waited)}, start-up {_duration(began)}, training {_duration(trained)}"
    return f"{hover_text(job.state.trial)}<br>attempt {job.attempt.number}: {how}<br>{times}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
