"""What all figures share: colours, labels, hover texts. Text and grid colours are the page's (light or dark)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

from hpcjf.analysis.words import text_of
from hpcjf.types import Cause, Config, Observation, Trial

COLOURS = (
    "#3b7dd8", "#e08a1e", "#2a9d6f", "#d1495b", "#8d6cc9", "#17a3b8",
    "#b0793b", "#c45ab3", "#7d8f1f", "#5a6b8c",
)  # fmt: skip


def colour_of(names: Iterable[str]) -> Mapping[str, str]:
    """A colour for each name, in order; they repeat after ten."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(dict.fromkeys(names))}


def config_text(config: Config) -> str:
    return escape(", ".join(f"{name} {text_of(value)}" for name, value in config.items()))


def hover_text(trial: Trial, seen: Observation | None = None) -> str:
    """Lines for a hover box. Plotly reads them as HTML, so that all names are escaped."""
    lines = [f"<b>trial {trial.number}</b> · {escape(trial.config_id)} · {escape(trial.fidelity.model)}"]
    if seen is not None:
        lines.append(f"steps {seen.start_step} → {seen.fidelity.steps} · score {text_of(seen.score)} · {seen.cause}")
    lines += [escape(f"{name} {text_of(value)}") for name, value in trial.config.items()]
    return "<br>".join(lines)


def outcome(cause: Cause) -> str:
    """The few words a legend needs."""
    if cause is Cause.COMPLETED:
        return "budget reached"
    return "stopped early" if cause.stopped else "failed or cut off"


SYMBOLS = {"budget reached": "circle", "stopped early": "x", "failed or cut off": "triangle-down"}


def figure(height: int, **layout: Any) -> go.Figure:
    """An empty figure in the page's style; its title is the page's heading above it."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 16, "t": 30, "b": 52},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        **layout,
    )
    return figure


def buttons(choices: Iterable[tuple[str, list[Any]]], method: str) -> dict[str, Any]:
    """A menu of (label, arguments of plotly's ``method``); the caller adds its place."""
    return {
        "type": "buttons",
        "direction": "right",
        "pad": {"t": 4},
        "bgcolor": "rgba(128,128,128,0.15)",
        "bordercolor": "rgba(128,128,128,0.4)",
        "font": {"size": 11},
        "buttons": [{"label": label, "method": method, "args": args} for label, args in choices],
    }
