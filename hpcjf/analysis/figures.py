"""Figures of the search and of the final comparison. Each is None where there is nothing to show yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hpcjf.analysis.compare import Comparison
from hpcjf.analysis.evaluation import Evaluation
from hpcjf.analysis.load import RunData
from hpcjf.analysis.plotting import COLOURS, SYMBOLS, buttons, colour_of, figure, hover_text, outcome
from hpcjf.analysis.rungs import configurations, scores_by_fidelity
from hpcjf.analysis.words import text_of
from hpcjf.core.lifecycle import TrialState
from hpcjf.study import Categorical
from hpcjf.types import Config, Observation, Purpose, Scalar

HOURS = "wall time since the first trial, h"
SCALE = ((0, "#5b6fc0"), (0.5, "#2a9d8f"), (1, "#f0a030"))
MOST_BUTTONS = 5
SIZES = (7, 9, 12, 15)
"""Marker sizes from the lowest budget to the highest."""


def incumbent_history(run: RunData) -> go.Figure | None:
    """Score of every search trial and of the best one so far, over hours and, by a button, over ended trials."""
    ended = sorted(_ended(run), key=lambda pair: _end(pair[0]))
    if not ended:
        return None
    fig = figure(420, hovermode="closest")
    origin = min(state.time for state, _ in ended)
    hours = [(_end(state) - origin) / 3600 for state, _ in ended]
    scored = [seen.score for _, seen in ended if seen.score is not None]
    floor = min(scored) - 0.08 * ((max(scored) - min(scored)) or 1.0) if scored else 0.0
    colours = colour_of(model.name for model in run.study.models)
    counts: list[list[float]] = []
    for kind, model in [(kind, model) for model in colours for kind in SYMBOLS]:
        chosen = [i for i, (_, o) in enumerate(ended) if (outcome(o.cause), o.fidelity.model) == (kind, model)]
        if chosen:
            points = _history_points([ended[i] for i in chosen], [hours[i] for i in chosen], floor, colours[model])
            fig.add_trace(points.update(name=f"{escape(model)}, {kind}"))
            counts.append([i + 1 for i in chosen])
    _add_incumbents(fig, run, origin, [_end(state) for state, _ in ended], counts)
    by_hours = [list(trace.x) for trace in fig.data]
    fig.update_layout(updatemenus=[_axis_buttons(by_hours, counts)])
    fig.update_xaxes(title=HOURS, rangemode="tozero")
    fig.update_yaxes(title=_score_title(run))
    return fig


def _history_points(
    ended: Sequence[tuple[TrialState, Observation]], hours: list[float], floor: float, colour: str
) -> go.Scatter:
    """Trials without a score sit on the floor of the figure."""
    symbol = SYMBOLS[outcome(ended[0][1].cause)]
    return go.Scatter(
        x=hours,
        y=[floor if seen.score is None else seen.score for _, seen in ended],
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 9, "opacity": 0.8},
        text=[hover_text(state.trial, seen) + ("<br>no score" if seen.score is None else "") for state, seen in ended],
        hovertemplate="%{text}<extra></extra>",
    )


def _add_incumbents(
    fig: go.Figure, run: RunData, origin: float, ends: Sequence[float], counts: list[list[float]]
) -> None:
    found = [incumbent for incumbent in run.state.incumbents if incumbent.score is not None]
    if not found:
        return
    times = [incumbent.time for incumbent in found]
    last = max(ends[-1], times[-1])
    fig.add_trace(
        go.Scatter(
            x=[(time - origin) / 3600 for time in [*times, last]],
            y=[incumbent.score for incumbent in [*found, found[-1]]],
            mode="lines",
            name="incumbent",
            line={"shape": "hv", "width": 2.5, "color": COLOURS[3]},
            text=[escape(incumbent.config_id) for incumbent in [*found, found[-1]]],
            hovertemplate="incumbent %{text}<br>score %{y:.4g}<extra></extra>",
        )
    )
    counts.append([float(sum(end <= time for end in ends)) for time in [*times, last]])


def _axis_buttons(hours: list[list[float]], counts: list[list[float]]) -> dict[str, Any]:
    choices: list[tuple[str, list[Any]]] = [
        ("over hours", [{"x": hours}, {"xaxis.title.text": HOURS}]),
        ("over trials", [{"x": counts}, {"xaxis.title.text": "ended trials"}]),
    ]
    return buttons(choices, "update") | {"x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top"}


def parallel_coordinates(run: RunData) -> go.Figure | None:
    """One line a configuration, all at one fidelity; buttons choose among those with most configurations."""
    groups = sorted(scores_by_fidelity(run).items(), key=lambda item: (-len(item[1]), -item[0].steps))
    groups = [(fidelity, scores) for fidelity, scores in groups if len(scores) > 1][:MOST_BUTTONS]
    names = _varied(list(configurations(run).values()))
    if not groups or not names:
        return None
    fig = figure(440)
    fig.update_layout(margin={"l": 70, "r": 30, "t": 90, "b": 24})
    for index, (_, scores) in enumerate(groups):
        fig.add_trace(_coordinates(run, names, scores).update(visible=index == 0))
    labels = [f"{escape(fidelity.model)}, {fidelity.steps} steps ({len(scores)})" for fidelity, scores in groups]
    shows: list[list[Any]] = [
        [{"visible": [other == index for other in range(len(groups))]}] for index in range(len(groups))
    ]
    menu = buttons(zip(labels, shows, strict=True), "restyle")
    fig.update_layout(updatemenus=[menu | {"x": 0, "xanchor": "left", "y": 1.32, "yanchor": "top"}])
    return fig


def _coordinates(run: RunData, names: Sequence[str], scores: Mapping[str, float]) -> go.Parcoords:
    configs = configurations(run)
    axes = [_axis(run, name, [configs[config].get(name) for config in scores]) for name in names]
    values = list(scores.values())
    axes.append({"label": "score", "values": values})
    reverse = run.study.study.direction == "minimize"
    line = {"color": values, "colorscale": SCALE, "reversescale": reverse}
    return go.Parcoords(line=line, dimensions=axes, unselected={"line": {"opacity": 0.05}})


def _axis(run: RunData, name: str, values: list[Scalar | None]) -> dict[str, Any]:
    """A dimension of the parallel coordinates: categories by index, log ranges by their logarithm."""
    if not all(_number(value) for value in values):
        texts = sorted({text_of(value) for value in values})
        places = [texts.index(text_of(value)) for value in values]
        labels = [escape(text[:24]) for text in texts]
        return {"label": escape(name), "values": places, "tickvals": list(range(len(texts))), "ticktext": labels}
    numbers = [float(value) for value in values if value is not None]
    if not (_is_log(run, name) and min(numbers) > 0):
        return {"label": escape(name), "values": numbers}
    logs = [math.log10(number) for number in numbers]
    ticks = [float(tick) for tick in np.linspace(min(logs), max(logs), 5 if min(logs) < max(logs) else 1)]
    return {"label": escape(name), "values": logs, "tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]}


def hyperparameters(run: RunData) -> go.Figure | None:
    """Score against each varied hyperparameter: colour is the model, size the budget reached."""
    seen = [pair for pair in _ended(run) if pair[1].score is not None]
    names = _varied([state.trial.config for state, _ in seen])
    if len(seen) < 2 or not names:
        return None
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    layout = figure(90 + 260 * rows).layout
    gaps = {"horizontal_spacing": 0.04, "vertical_spacing": 0.3 / rows}
    fig = make_subplots(rows=rows, cols=columns, shared_yaxes=True, **gaps)
    fig.update_layout(layout)
    fig.update_layout(legend={"itemsizing": "constant"})
    colours = colour_of(model.name for model in run.study.models)
    shown: set[str] = set()
    for index, name in enumerate(names):
        row, column = divmod(index, columns)
        for model, colour in colours.items():
            pairs = [pair for pair in seen if pair[1].fidelity.model == model and name in pair[0].trial.config]
            if pairs:
                points = _parameter_points(run, name, pairs, colour)
                points.update(name=escape(model), legendgroup=model, showlegend=model not in shown)
                shown.add(model)
                fig.add_trace(points, row=row + 1, col=column + 1)
        numeric = all(_number(state.trial.config.get(name)) for state, _ in seen)
        fig.update_xaxes(title=escape(name), row=row + 1, col=column + 1)
        if numeric and _is_log(run, name):
            fig.update_xaxes(type="log", exponentformat="e", row=row + 1, col=column + 1)
        elif not numeric:
            fig.update_xaxes(type="category", row=row + 1, col=column + 1)
    fig.update_yaxes(title=_score_title(run), col=1)
    return fig


def _parameter_points(
    run: RunData, name: str, pairs: Sequence[tuple[TrialState, Observation]], colour: str
) -> go.Scatter:
    values = [state.trial.config[name] for state, _ in pairs]
    return go.Scatter(
        x=[value if _number(value) else escape(text_of(value)) for value in values],
        y=[seen.score for _, seen in pairs],
        mode="markers",
        marker={
            "color": colour,
            "opacity": 0.75,
            "line": {"width": 0},
            "size": [_size(run, seen.fidelity.steps) for _, seen in pairs],
            "symbol": [SYMBOLS[outcome(seen.cause)] for _, seen in pairs],
        },
        text=[hover_text(state.trial, seen) for state, seen in pairs],
        hovertemplate="%{text}<extra></extra>",
    )


def final_scores(result: Comparison) -> go.Figure | None:
    """Test score of base model, recipe and winner with 95 % intervals; small marks are single seeds."""
    sides = [("base model", result.base), ("recipe", result.recipe), ("winner", result.winner)]
    if result.winner_is_recipe:
        sides = [("base model", result.base), ("recipe = winner", result.winner)]
    measured = [(name, side) for name, side in sides if side is not None]
    if not measured:
        return None
    fig = figure(130 + 60 * len(measured), showlegend=False, bargap=0.45)
    colours = {"base model": "#8a8f98", "recipe": COLOURS[1]}
    for name, side in measured:
        fig.add_trace(
            go.Bar(
                y=[name],
                x=[side.mean],
                orientation="h",
                marker={"color": colours.get(name, COLOURS[0]), "opacity": 0.85},
                error_x={
                    "type": "data", "symmetric": False, "thickness": 2, "width": 8, "color": "#888",
                    "array": [side.high - side.mean], "arrayminus": [side.mean - side.low],
                },
                hovertemplate=f"{name}: {side.mean:.4g}<br>95 % {side.low:.4g} … {side.high:.4g}<extra></extra>",
            )
        )  # fmt: skip
        if len(side.by_seed) > 1:
            marker = {"symbol": "line-ns-open", "size": 16, "color": "#888", "line": {"width": 2}}
            seeds = go.Scatter(x=side.by_seed, y=[name] * len(side.by_seed), mode="markers", marker=marker)
            fig.add_trace(seeds.update(hovertemplate="one training seed: %{x:.4g}<extra></extra>"))
    fig.update_xaxes(title="mean score on the test rows")
    fig.update_layout(margin={"l": 120})
    return fig


def pass_curves(found: Evaluation | None) -> go.Figure | None:
    """pass@k over k with 95 % intervals."""
    if found is None or not found.curves:
        return None
    fig = figure(340)
    colours = {"winner": COLOURS[0], "recipe": COLOURS[1], "base": "#8a8f98"}
    for name, curve in found.curves.items():
        sides = list(curve.values())
        bounds = {
            "type": "data", "symmetric": False, "thickness": 1.5, "width": 5,
            "array": [side.high - side.mean for side in sides],
            "arrayminus": [side.mean - side.low for side in sides],
        }  # fmt: skip
        line = go.Scatter(
            x=list(curve), y=[side.mean for side in sides], name=name, mode="lines+markers", error_y=bounds
        )
        fig.add_trace(line.update(line={"color": colours[name]}, hovertemplate="pass@%{x}: %{y:.4g}<extra></extra>"))
    ks = sorted({k for curve in found.curves.values() for k in curve})
    fig.update_xaxes(title="k", type="log", tickvals=ks, ticktext=[str(k) for k in ks])
    fig.update_yaxes(title="pass@k", rangemode="tozero")
    return fig


def _ended(run: RunData) -> list[tuple[TrialState, Observation]]:
    pairs = ((state, state.observation()) for state in run.state.of(Purpose.SEARCH))
    return [(state, seen) for state, seen in pairs if seen is not None]


def _varied(configs: Sequence[Config]) -> list[str]:
    """Hyperparameters with more than one value."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({config.get(name) for config in configs}) > 1]


def _is_log(run: RunData, name: str) -> bool:
    dimension = (run.study.space or {}).get(name)
    return dimension is not None and not isinstance(dimension, Categorical) and dimension.log


def _number(value: Scalar | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(run: RunData, steps: int) -> int:
    """Marker size for a number of steps, by its place between the lowest and the full budget."""
    budget = run.study.budget
    if budget.max == budget.min:
        return SIZES[1]
    place = math.log(max(steps, 1) / budget.min) / math.log(budget.max / budget.min)
    return SIZES[round(min(1.0, max(0.0, place)) * (len(SIZES) - 1))]


def _end(state: TrialState) -> float:
    ending = state.attempts[-1].ending
    return ending.time if ending else state.time


def _score_title(run: RunData) -> str:
    return "validation score" if run.study.study.metric == "eval_score" else "mean reward"
