"""Training curves from the traces: reward, KL and validation score over global steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hpcjf.analysis.load import RunData
from hpcjf.analysis.plotting import COLOURS, colour_of, config_text, figure
from hpcjf.core.lifecycle import Attempt, TrialState
from hpcjf.store.traces import Rows
from hpcjf.types import Purpose

PANELS = (("reward_mean", "reward"), ("kl", "KL, nats/token"), ("eval_score", "validation score"))
MOST_CONFIGURATIONS = 30
MOST_POINTS = 300
DASHES = ("solid", "dash", "dot")


@dataclass(frozen=True, slots=True)
class Curves:
    """A figure, and a sentence about what was left out of it."""

    figure: go.Figure
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class _Line:
    state: TrialState
    attempt: Attempt
    rows: Rows


def search_curves(run: RunData) -> Curves | None:
    """Every attempt of the search, one legend entry a configuration; above 30 the best and the latest ones only."""
    lines = list(_lines(run, Purpose.SEARCH))
    if not lines:
        return None
    chosen = _chosen(run, lines)
    everything = {line.state.trial.config_id for line in lines}
    fig = _panels(760)
    colours = colour_of(chosen)
    dashes = {config: DASHES[index // len(COLOURS) % len(DASHES)] for index, config in enumerate(chosen)}
    for config in chosen:
        own = [line for line in lines if line.state.trial.config_id == config]
        _add_group(fig, own, config, _legend(own), {"color": colours[config], "dash": dashes[config]})
    if len(everything) == len(chosen):
        return Curves(fig)
    half = MOST_CONFIGURATIONS // 2
    return Curves(
        fig,
        f"Of {len(everything)} configurations with a trace only {len(chosen)} are drawn: the {half} with the best "
        f"score and the {len(chosen) - half} latest of the others.",
    )


def final_curves(run: RunData) -> Curves | None:
    """The final trials: winner against recipe, one line a training seed."""
    fig = _panels(560)
    fig.update_layout(legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}, margin={"r": 16})
    sides = ((Purpose.RECIPE, "recipe", COLOURS[1]), (Purpose.FINAL, "winner", COLOURS[0]))
    for purpose, name, colour in sides:
        own = list(_lines(run, purpose))
        if own:
            _add_group(
                fig, own, name, f"{name} ({_plural(len({_seed(line) for line in own}), 'seed')})", {"color": colour}
            )
    return Curves(fig) if fig.data else None


def _lines(run: RunData, purpose: Purpose) -> Iterator[_Line]:
    for state in run.state.of(purpose):
        for attempt in state.attempts:
            rows = run.traces.get((attempt.trial, attempt.number))
            if rows is not None:
                yield _Line(state, attempt, rows)


def _chosen(run: RunData, lines: Sequence[_Line]) -> list[str]:
    """Configurations to draw, in order of their first trial."""
    latest = list(dict.fromkeys(line.state.trial.config_id for line in reversed(lines)))
    if len(latest) <= MOST_CONFIGURATIONS:
        return latest[::-1]
    sign = -1.0 if run.study.study.direction == "maximize" else 1.0
    scores: dict[str, float] = {}
    for line in lines:
        ending, config = line.attempt.ending, line.state.trial.config_id
        if ending is not None and ending.score is not None:
            scores[config] = min(scores.get(config, np.inf), sign * ending.score)
    best = sorted(scores, key=lambda config: scores[config])[: MOST_CONFIGURATIONS // 2]
    others = [config for config in latest if config not in best]
    keep = {*best, *others[: MOST_CONFIGURATIONS - len(best)]}
    return [config for config in latest[::-1] if config in keep]


def _panels(height: int) -> go.Figure:
    fig = make_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=0.04)
    fig.update_layout(figure(height, hovermode="closest").layout)
    fig.update_layout(
        legend={
            "orientation": "v", "x": 1.01, "y": 1, "yanchor": "top", "font": {"size": 11}, "groupclick": "togglegroup"
        },
        margin={"r": 230},
    )  # fmt: skip
    for row, (_, title) in enumerate(PANELS, start=1):
        fig.update_yaxes(title=title, row=row)
    fig.update_xaxes(title="global steps", row=len(PANELS))
    return fig


def _add_group(fig: go.Figure, lines: Sequence[_Line], group: str, legend: str, style: dict[str, str]) -> None:
    """Lines of one configuration over all panels; the legend entry switches all of them."""
    first = True
    for line in lines:
        hover = _hover(line)
        for row, (column, _) in enumerate(PANELS, start=1):
            points = _points(line.rows, column)
            if points is None:
                continue
            scatter = go.Scatter(
                x=points[0],
                y=points[1],
                mode="lines+markers" if len(points[0]) == 1 or column == "eval_score" else "lines",
                line={**style, "width": 1.4},
                marker={"size": 5},
                name=legend,
                legendgroup=group,
                showlegend=first,
                hovertemplate=f"{hover}<br>step %{{x}}: %{{y:.4g}}<extra></extra>",
            )
            first = False
            fig.add_trace(scatter, row=row, col=1)
            for mark in _marks(line, points, style["color"]):
                mark.update(legendgroup=group, showlegend=False)
                fig.add_trace(mark, row=row, col=1)


def _points(rows: Rows, column: str) -> tuple[Any, Any] | None:
    """Measured values ``[n]`` over steps ``[n]``, thinned to at most 300, first and last kept."""
    values = rows[column]
    found = np.flatnonzero(np.isfinite(values))
    if not found.size:
        return None
    if found.size > MOST_POINTS:
        found = found[np.linspace(0, found.size - 1, MOST_POINTS).round().astype(int)]
    return rows["step"][found].astype(np.int32), values[found].astype(np.float32)


def _marks(line: _Line, points: tuple[Any, Any], colour: str) -> Iterator[go.Scatter]:
    """An open circle where a checkpoint was resumed, a cross where a rule stopped it."""
    steps, values = points
    trial = line.state.trial.number
    if _resumed(line) and steps[0] == line.rows["step"][0]:
        yield _mark(steps[0], values[0], "circle-open", colour, f"trial {trial} resumed after step {_resumed(line)}")
    ending = line.attempt.ending
    if ending is not None and ending.cause.stopped:
        why = escape(line.attempt.stop_why or ending.detail or str(ending.cause))
        yield _mark(steps[-1], values[-1], "x", colour, f"trial {trial} stopped at step {ending.step}: {why}")


def _mark(step: Any, value: Any, symbol: str, colour: str, text: str) -> go.Scatter:
    marker = {"symbol": symbol, "size": 9, "color": colour, "line": {"width": 2, "color": colour}}
    return go.Scatter(
        x=[int(step)], y=[float(value)], mode="markers", marker=marker, hovertemplate=f"{text}<extra></extra>"
    )


def _hover(line: _Line) -> str:
    trial = line.state.trial
    head = f"<b>trial {trial.number}</b>, attempt {line.attempt.number}, seed {trial.training_seed}"
    where = f"{escape(trial.config_id)} on {escape(trial.fidelity.model)}"
    return f"{head}<br>{where}<br>{_wrapped(config_text(trial.config))}"


def _wrapped(text: str) -> str:
    """Two hyperparameters a line."""
    parts = text.split(", ")
    return "<br>".join(", ".join(parts[start : start + 2]) for start in range(0, len(parts), 2))


def _legend(lines: Sequence[_Line]) -> str:
    numbers = list(dict.fromkeys(line.state.trial.number for line in lines))
    shown = ", ".join(str(number) for number in numbers[:4]) + ("…" if len(numbers) > 4 else "")
    return f"{escape(lines[0].state.trial.config_id[:8])} · trial {shown}"


def _resumed(line: _Line) -> int:
    return int(line.rows["step"][0]) - 1


def _seed(line: _Line) -> int:
    return line.state.trial.training_seed


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
