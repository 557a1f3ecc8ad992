"""Scores grouped by fidelity, so that only trials of one model at one budget are held against each other."""

from __future__ import annotations

from collections.abc import Mapping

from hpcjf.analysis.load import RunData
from hpcjf.types import Config, Fidelity, Observation


def scores_by_fidelity(run: RunData) -> dict[Fidelity, dict[str, float]]:
    """Validation score by configuration, of trials that reached their budget; several seeds are averaged.

    Configurations stand in the order in which they first got there.
    """
    found: dict[Fidelity, dict[str, list[float]]] = {}
    for _, seen in _reached(run):
        assert seen.score is not None
        found.setdefault(seen.fidelity, {}).setdefault(seen.config_id, []).append(seen.score)
    return {
        fidelity: {config: sum(scores) / len(scores) for config, scores in group.items()}
        for fidelity, group in found.items()
    }


def scored_at(run: RunData) -> dict[tuple[str, Fidelity], float]:
    """When a configuration's first score at a fidelity was known, unix seconds."""
    times: dict[tuple[str, Fidelity], float] = {}
    for time, seen in _reached(run):
        times.setdefault((seen.config_id, seen.fidelity), time)
    return times


def _reached(run: RunData) -> list[tuple[float, Observation]]:
    """Trials with a score at their whole budget, in the order of their ends."""
    found = []
    for state in run.state.trials.values():
        seen, ending = state.observation(), state.attempts[-1].ending if state.attempts else None
        if seen and ending and seen.score is not None and seen.fidelity == state.trial.fidelity:
            found.append((ending.time, seen))
    return sorted(found, key=lambda pair: pair[0])


def configurations(run: RunData) -> Mapping[str, Config]:
    """Configurations by id, in order of their first trial."""
    return {state.trial.config_id: state.trial.config for state in run.state.trials.values()}
