"""Whether a smaller model ranks configurations as the target does, and what the search made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hpcjf.analysis.load import RunData
from hpcjf.analysis.plotting import colour_of, config_text, figure
from hpcjf.analysis.rungs import configurations, scored_at, scores_by_fidelity
from hpcjf.core.lifecycle import TrialState
from hpcjf.core.ranks import ENOUGH, LOW, Agreement, Array, Correlation, agreement, spearman
from hpcjf.types import Fidelity, Purpose

Groups = Mapping[Fidelity, Mapping[str, float]]
Pairs = Mapping[str, tuple[float, float]]
"""Scores on the smaller model and on the target, by configuration, in the order in which both were known."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Shares of the search's job time by model, proxy first: of the trials before ``trial``, and from it on.

    ``trial`` is the first that was chosen once the correlation over at least five configurations was low.
    """

    trial: int
    before: Mapping[str, float]
    since: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Transfer:
    """How scores at one fidelity of a smaller model agree with those at one of the target.

    ``shift`` is None unless the correlation is low and a trial was chosen after that was known.
    """

    proxy: Fidelity
    target: Fidelity
    pairs: Pairs
    agreement: Agreement
    shift: Shift | None

    @property
    def moved(self) -> bool:
        """Whether this model and smaller ones got less of the cost once the correlation was known to be low."""
        shares = [self._share(of) for of in (self.shift.since, self.shift.before)] if self.shift else [0.0, 0.0]
        return shares[0] < shares[1]

    def _share(self, shares: Mapping[str, float]) -> float:
        names = list(shares)
        return sum(shares[name] for name in names[: names.index(self.proxy.model) + 1])


def transfer(run: RunData) -> tuple[Transfer, ...]:
    """For each model below the target, at the pair of budgets that shares most configurations (then: the deepest)."""
    groups = scores_by_fidelity(run)
    names = [model.name for model in run.study.models]
    checks = []
    for name in names[:-1]:
        pairs = [(p, t) for p in groups if p.model == name for t in groups if t.model == names[-1]]
        if pairs:
            checks.append(_check(run, groups, *max(pairs, key=lambda pair: _weight(groups, *pair))))
    return tuple(checks)


def sentence(check: Transfer) -> str:
    """The correlations and what they are worth."""
    found = check.agreement
    head = f"{check.proxy.model} at {check.proxy.steps} steps → {check.target.model} at {check.target.steps} steps: "
    if found.spearman is None or found.kendall is None:
        many = found.count >= ENOUGH
        return f"{head}{found.count} configurations scored on both, " + (
            "but one side's scores are all equal." if many else "too few to say."
        )
    figures = f"Spearman {_figures(found.spearman)}, Kendall {_figures(found.kendall)}"
    return f"{head}{found.verdict}. {figures} over {found.count} configurations scored on both."


def warning(check: Transfer) -> str:
    """What a low correlation means and what the search made of it; empty otherwise."""
    if check.agreement.verdict != "low":
        return ""
    text = f"{check.proxy.model} ranks configurations unlike {check.target.model}: what wins there says little here."
    if check.shift is None:
        return f"{text} No search trial was chosen after that was known."
    move = "the search moved to larger models" if check.moved else "the search did not move to larger models"
    before, since = map(_percent, (check.shift.before, check.shift.since))
    return f"{text} Job time by model before trial {check.shift.trial}: {before}; from it on: {since}: {move}."


def _percent(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())


def _figures(of: Correlation) -> str:
    return f"{of.value:.2f} [{of.low:.2f}, {of.high:.2f}]"


def scatter(run: RunData, checks: Sequence[Transfer]) -> go.Figure | None:
    """Score on the smaller model against score on the target, a panel for each check."""
    shown = [check for check in checks if check.pairs]
    if not shown:
        return None
    fig = make_subplots(rows=1, cols=len(shown), horizontal_spacing=0.09)
    fig.update_layout(figure(380, hovermode="closest", showlegend=False).layout)
    known, colours = configurations(run), colour_of(model.name for model in run.study.models)
    for column, check in enumerate(shown, start=1):
        left, right = zip(*check.pairs.values(), strict=True)
        texts = [f"<b>{escape(config)}</b><br>{config_text(known[config])}" for config in check.pairs]
        points = go.Scatter(
            x=left,
            y=right,
            mode="markers",
            marker={"color": colours[check.proxy.model], "size": 9, "opacity": 0.8},
            text=[text.replace(", ", "<br>") for text in texts],
            hovertemplate="%{text}<br>%{x:.4g} → %{y:.4g}<extra></extra>",
        )
        fig.add_trace(points, row=1, col=column)
        fig.update_xaxes(title=f"score of {_shown(check.proxy)}", row=1, col=column)
        fig.update_yaxes(title=f"score of {_shown(check.target)}", row=1, col=column)
    return fig


def _shown(fidelity: Fidelity) -> str:
    return f"{escape(fidelity.model)} at {fidelity.steps} steps"


def _weight(groups: Groups, proxy: Fidelity, target: Fidelity) -> tuple[int, int, int]:
    return len(groups[proxy].keys() & groups[target].keys()), target.steps, proxy.steps


def _check(run: RunData, groups: Groups, proxy: Fidelity, target: Fidelity) -> Transfer:
    times = scored_at(run)
    shared = groups[proxy].keys() & groups[target].keys()
    known = {config: max(times[config, proxy], times[config, target]) for config in shared}
    both = sorted(known, key=lambda config: (known[config], config))
    left, right = (np.array([groups[at][config] for config in both]) for at in (proxy, target))
    found = agreement(left, right)
    counts = range(ENOUGH, len(both) + 1) if found.verdict == "low" else ()
    low = next((count for count in counts if _is_low(left[:count], right[:count])), None)
    shift = _shift(run, known[both[low - 1]]) if low else None
    return Transfer(proxy, target, {c: (groups[proxy][c], groups[target][c]) for c in both}, found, shift)


def _is_low(left: Array, right: Array) -> bool:
    value = spearman(left, right)
    return value is not None and value < LOW


def _shift(run: RunData, known: float) -> Shift | None:
    """``known``: when the correlation was first seen to be low, unix seconds."""
    search = run.state.of(Purpose.SEARCH)
    later = [state for state in search if state.time >= known]
    if not later:
        return None
    names = [model.name for model in run.study.models]
    earlier = [state for state in search if state.time < known]
    return Shift(later[0].trial.number, _shares(earlier, names), _shares(later, names))


def _shares(trials: Iterable[TrialState], names: Sequence[str]) -> Mapping[str, float]:
    seconds = dict.fromkeys(names, 0.0)
    for state in trials:
        endings = (attempt.ending for attempt in state.attempts if attempt.ending)
        seconds[state.trial.fidelity.model] += sum(ending.seconds + ending.startup_seconds for ending in endings)
    whole = sum(seconds.values()) or 1.0
    return {name: spent / whole for name, spent in seconds.items()}
