"""The winner against the recipe and the base model on the test rows.

Uncertainty is a two-way bootstrap: training seeds and test rows are resampled together. Winner and recipe share
their seeds and rows, so a difference is resampled as one table of differences: paired by seed and by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.analysis.load import RunData
from hpcjf.core.identity import plain
from hpcjf.core.lifecycle import TrialState
from hpcjf.types import Cause, Config, Purpose

Table = NDArray[np.float64]
"""Test scores ``[seeds, rows]``."""

DRAWS = 4000
FEW_SEEDS = 5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and test rows with its 95 % interval. ``by_seed`` holds one mean for each seed."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    rows: int

    @property
    def spans(self) -> str:
        """What the interval covers, in words."""
        if len(self.by_seed) == 1:
            return f"interval over {self.rows} test prompts only (one training seed: seed noise is not in it)"
        return f"interval over {len(self.by_seed)} training seeds and {self.rows} test prompts"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the final trials say so far. Whatever has not been measured is None."""

    winner_id: str | None
    winner_config: Config | None
    winner_is_recipe: bool
    winner: Estimate | None = None
    recipe: Estimate | None = None
    base: Estimate | None = None
    difference: Estimate | None = None
    notes: tuple[str, ...] = ()


def estimate(scores: Table) -> Estimate:
    """Mean and percentile interval of ``scores`` ``[S, R]``; seeds alone or rows alone where the other is 1."""
    rng = np.random.default_rng(0)
    seeds, rows = scores.shape
    draws = np.empty(DRAWS)
    for draw in range(DRAWS):
        picked = scores[rng.integers(seeds, size=seeds)].mean(axis=0)
        draws[draw] = picked[rng.integers(rows, size=rows)].mean()
    low, high = np.percentile(draws, [2.5, 97.5])
    by_seed = tuple(float(mean) for mean in scores.mean(axis=1))
    return Estimate(float(scores.mean()), float(low), float(high), by_seed, rows)


def compare(run: RunData) -> Comparison:
    """The comparison as far as the run has come."""
    finals, recipes = run.state.of(Purpose.FINAL), run.state.of(Purpose.RECIPE)
    winner_id, config = _winner(run, finals)
    same = recipe_won(run)
    notes: list[str] = []
    theirs = _scores(run, [*recipes, *finals] if same else recipes, "the recipe", notes)
    ours = theirs if same else _scores(run, finals, "the winner", notes)
    winner, recipe = _table(ours), _table(theirs)
    difference = None if same else _paired(ours, theirs, notes)
    if 1 < len(ours) < FEW_SEEDS:
        notes.append(f"With {len(ours)} training seeds the interval is a rough one: it tends to be too narrow.")
    return Comparison(
        winner_id=winner_id,
        winner_config=config,
        winner_is_recipe=same,
        winner=winner,
        recipe=recipe,
        base=_base(run, [*finals, *recipes]),
        difference=difference,
        notes=tuple(notes),
    )


def recipe_won(run: RunData) -> bool:
    """Whether the winner, before the final trials the incumbent, is the recipe."""
    winner_id, config = _winner(run, run.state.of(Purpose.FINAL))
    twins = {state.trial.config_id for state in run.state.of(Purpose.RECIPE)} & {winner_id}
    return config is not None and _is_recipe(run, config, twins)


def better(difference: Estimate, direction: str) -> bool | None:
    """Whether the winner beats the recipe; None where the interval holds zero."""
    if difference.low <= 0 <= difference.high:
        return None
    return (difference.mean > 0) == (direction == "maximize")


def _winner(run: RunData, finals: list[TrialState]) -> tuple[str | None, Config | None]:
    """The configuration of the final trials; before them, the incumbent's."""
    if finals:
        return finals[-1].trial.config_id, finals[-1].trial.config
    if run.state.incumbents:
        return run.state.incumbents[-1].config_id, run.state.incumbents[-1].config
    return None, None


def _is_recipe(run: RunData, config: Config, twins: Set[str | None]) -> bool:
    """``twins`` are recipe trials of the winner's id. A recipe that does not name a key leaves it to ``algorithm``."""
    recipe = run.study.recipe
    if twins or isinstance(recipe, str):
        return bool(twins)
    settings = run.study.algorithm.model_dump() | recipe
    return bool(config) and all(
        key in settings and plain(settings[key]) == plain(value) for key, value in config.items()
    )


def _scores(run: RunData, trials: Iterable[TrialState], who: str, notes: list[str]) -> dict[int, Table]:
    """Test scores ``[R]`` by training seed; seeds whose row count differs from the first one's are left out."""
    scores: dict[int, Table] = {}
    for state in trials:
        result = run.last_result(state)
        seed = state.trial.training_seed
        if result is None or result.cause is not Cause.COMPLETED or not result.test_scores:
            if state.cause not in (None, Cause.COMPLETED):
                notes.append(f"Seed {seed} of {who} ended with {state.cause} and is left out.")
            continue
        values = np.asarray(result.test_scores, dtype=np.float64)
        if scores and values.size != next(iter(scores.values())).size:
            notes.append(f"Seed {seed} of {who} was scored on {values.size} test rows and is left out.")
            continue
        scores[seed] = values
    return scores


def _table(scores: Mapping[int, Table]) -> Estimate | None:
    return estimate(np.stack([scores[seed] for seed in sorted(scores)])) if scores else None


def _paired(ours: Mapping[int, Table], theirs: Mapping[int, Table], notes: list[str]) -> Estimate | None:
    """Difference over the seeds that both sides have."""
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        if ours and theirs:
            notes.append("Winner and recipe have no training seed in common: no paired difference.")
        return None
    if any(ours[seed].size != theirs[seed].size for seed in seeds):
        notes.append("Winner and recipe were scored on different numbers of test rows: no paired difference.")
        return None
    if len(seeds) < max(len(ours), len(theirs)):
        notes.append(f"The difference is over the {len(seeds)} training seed(s) that both sides have.")
    return estimate(np.stack([ours[seed] - theirs[seed] for seed in seeds]))


def _base(run: RunData, trials: Iterable[TrialState]) -> Estimate | None:
    """The untrained target; greedy scores, so one seed."""
    for state in trials:
        result = run.last_result(state)
        if result is not None and result.base_test_scores:
            return estimate(np.asarray([result.base_test_scores], dtype=np.float64))
    return None
