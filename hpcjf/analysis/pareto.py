"""Score against KL to the reference: two objectives, and the trials that no other one beats in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from hpcjf.analysis.load import RunData
from hpcjf.analysis.plotting import COLOURS, SYMBOLS, buttons, figure, hover_text, outcome
from hpcjf.core.lifecycle import TrialState
from hpcjf.store.traces import final_kl
from hpcjf.types import Observation, Purpose, Trial


@dataclass(frozen=True, slots=True)
class Outcome:
    """A search trial with a score and a KL (nats per token), both at the step that it reached."""

    trial: Trial
    seen: Observation
    score: float
    kl: float
    front: bool
    """No other trial on its model has a better score at no more KL, or less KL at no worse a score."""
    beyond: bool
    """Over ``search.kl_ceiling``."""


def by_model(run: RunData) -> dict[str, list[Outcome]]:
    """Search trials by rising KL, for each model that has several: the target first."""
    names = [model.name for model in reversed(run.study.models)]
    return {name: found for name in names if len(found := _outcomes(run, name)) > 1}


def _outcomes(run: RunData, model: str) -> list[Outcome]:
    sign = 1.0 if run.study.study.direction == "maximize" else -1.0
    ceiling = run.study.search.kl_ceiling
    measured = sorted(_measured(run, model), key=lambda each: (each[3], -sign * each[2]))
    best, found = (math.inf, -math.inf), []
    for trial, seen, score, kl in measured:
        # all that came before has less KL, or as much and no worse a score
        front = sign * score > best[1] or (kl, sign * score) == best
        best = (kl, sign * score) if front else best
        found.append(Outcome(trial, seen, score, kl, front, ceiling is not None and kl > ceiling))
    return found


def _measured(run: RunData, model: str) -> Iterator[tuple[Trial, Observation, float, float]]:
    for state in run.state.of(Purpose.SEARCH):
        seen = state.observation()
        if seen is not None and seen.fidelity.model == model and seen.score is not None:
            kl = seen.kl if seen.kl is not None else _traced(run, state)
            if kl is not None:
                yield state.trial, seen, seen.score, kl


def _traced(run: RunData, state: TrialState) -> float | None:
    rows = run.traces.get((state.trial.number, state.attempts[-1].number))
    return None if rows is None else final_kl(rows)


def trade_off(run: RunData) -> go.Figure | None:
    """Score over KL; a button for each model that has both, the target first."""
    groups = by_model(run)
    if not groups:
        return None
    fig, owners = figure(440, hovermode="closest"), list[str]()
    for name, found in groups.items():
        for trace in _traces(run, found):
            fig.add_trace(trace.update(visible=name == next(iter(groups))))
            owners.append(name)
    choices = [(escape(name), [{"visible": [owner == name for owner in owners]}]) for name in groups]
    if len(groups) > 1:
        menu = buttons(choices, "restyle")
        fig.update_layout(updatemenus=[menu | {"x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top"}])
    fig.update_xaxes(title="KL to the reference, nats/token", rangemode="tozero")
    fig.update_yaxes(title="validation score")
    return fig


def _traces(run: RunData, found: Sequence[Outcome]) -> Iterator[go.Scatter]:
    for name, colour, chosen in (
        ("trials", COLOURS[0], [each for each in found if not each.beyond]),
        ("over the ceiling", COLOURS[3], [each for each in found if each.beyond]),
    ):
        if chosen:
            yield _points(name, colour, chosen)
    front = [each for each in found if each.front]
    line = {"shape": "hv", "width": 2, "color": COLOURS[2]}
    yield go.Scatter(
        x=[each.kl for each in front],
        y=[each.score for each in front],
        mode="lines",
        name="front",
        line=line,
        hoverinfo="skip",
    )
    ceiling = run.study.search.kl_ceiling
    if ceiling is not None:
        ends = [min(each.score for each in found), max(each.score for each in found)]
        style = {"width": 1.5, "dash": "dash", "color": COLOURS[3]}
        text = f"ceiling {ceiling:g}"
        yield go.Scatter(x=[ceiling] * 2, y=ends, mode="lines", name=text, line=style, hoverinfo="name")


def _points(name: str, colour: str, chosen: Sequence[Outcome]) -> go.Scatter:
    return go.Scatter(
        x=[each.kl for each in chosen],
        y=[each.score for each in chosen],
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "opacity": 0.8,
            "size": [12 if each.front else 8 for each in chosen],
            "symbol": [SYMBOLS[outcome(each.seen.cause)] for each in chosen],
        },
        text=[f"{hover_text(each.trial, each.seen)}<br>KL {each.kl:.3g}" for each in chosen],
        hovertemplate="%{text}<extra></extra>",
    )
