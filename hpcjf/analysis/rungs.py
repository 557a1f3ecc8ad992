"""Scores grouped by fidelity, so that only trials of one model at one budget are held against each other."""

from __future__ import annotations

from collections.abc import Mapping

from hpcjf.analysis.load import RunData
from hpcjf.types import Config, Fidelity


def scores_by_fidelity(run: RunData) -> dict[Fidelity, dict[str, float]]:
    """Validation score by configuration, of trials that reached their budget; several seeds are averaged."""
    found: dict[Fidelity, dict[str, list[float]]] = {}
    for state in run.state.trials.values():
        seen = state.observation()
        if seen is not None and seen.score is not None and seen.fidelity == state.trial.fidelity:
            found.setdefault(seen.fidelity, {}).setdefault(seen.config_id, []).append(seen.score)
    return {
        fidelity: {config: sum(scores) / len(scores) for config, scores in group.items()}
        for fidelity, group in found.items()
    }


def configurations(run: RunData) -> Mapping[str, Config]:
    """Configurations by id, in order of their first trial."""
    return {state.trial.config_id: state.trial.config for state in run.state.trials.values()}
