"""What the final runs of winner, recipe and base model measured, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hpcjf.analysis.compare import recipe_won
from hpcjf.analysis.load import RunData
from hpcjf.analysis.shares import Array
from hpcjf.core.lifecycle import TrialState
from hpcjf.store.messages import Measured
from hpcjf.tasks.metrics import CORRECT
from hpcjf.types import Purpose


@dataclass(frozen=True, slots=True)
class Final:
    """One final run, or the base model: its figures and the test scores ``[R]`` of the same rows."""

    measured: Measured
    scores: Array
    samples: int

    @property
    def shape(self) -> tuple[object, ...]:
        """Runs of one shape can be averaged and compared."""
        filled = {name: sum(value is not None for value in values) for name, values in self.measured.rows.items()}
        return self.scores.size, len(self.measured.choices), filled

    def sound(self, largest: int) -> bool:
        """Whether figures and scores fit together, and the samples pass@k for k up to ``largest``."""
        counts = [count for count in self.measured.rows.get(CORRECT, ()) if count is not None]
        return (
            all(len(column) == self.scores.size for column in self.measured.rows.values())
            and all(count in range(self.samples + 1) for count in counts)
            and (not counts or largest <= self.samples)
        )


Values = Callable[[Final], Array | None]
"""One figure of a run by row or question."""


@dataclass(frozen=True, slots=True)
class Side:
    """Of one model by training seed. The base has the one seed None."""

    runs: Mapping[int | None, Final]

    def table(self, values: Values) -> dict[int | None, Array]:
        found = ((seed, values(each)) for seed, each in self.runs.items())
        return {seed: array for seed, array in found if array is not None and array.size}


@dataclass(frozen=True, slots=True)
class Sides:
    """Where the recipe has won, its runs are the winner's and ``recipe`` is empty. ``notes`` say what is left out."""

    winner: Side
    recipe: Side
    base: Side
    notes: tuple[str, ...]


def sides(run: RunData) -> Sides:
    """Runs whose figures do not fit together, or are of other rows or questions than the first one's, are left out."""
    largest, notes = max((1, *run.study.evaluation.pass_at)), list[str]()
    found: dict[str, dict[int | None, Final]] = {"winner": {}, "recipe": {}, "base": {}}
    first: Final | None = None
    for who, trial in _finals(run):
        for name, seed, final in _measured(run, who, trial):
            if not final.sound(largest) or (first is not None and final.shape != first.shape):
                what = f"The {name}" if seed is None else f"Seed {seed} of the {name}"
                notes.append(f"{what} was measured on other rows or questions and is left out here.")
                continue
            first = first or final
            found[name].setdefault(seed, final)
    winner, recipe = found["winner"], found["recipe"]
    if recipe_won(run):
        winner, recipe = recipe | winner, {}
    elif winner and found["base"] and len({_start(run, trial) for _, trial in _finals(run)}) > 1:
        notes.append("Winner and recipe start from different checkpoints; the base here is the recipe's.")
    return Sides(Side(winner), Side(recipe), Side(found["base"]), tuple(notes))


def _finals(run: RunData) -> Iterable[tuple[str, TrialState]]:
    for name, purpose in (("recipe", Purpose.RECIPE), ("winner", Purpose.FINAL)):
        yield from ((name, trial) for trial in run.state.of(purpose) if trial.attempts)


def _measured(run: RunData, who: str, trial: TrialState) -> Iterable[tuple[str, int | None, Final]]:
    key = (trial.trial.number, trial.attempts[-1].number)
    found, result = run.evaluations.get(key), run.results.get(key)
    if found is None or result is None or not result.test_scores:
        return
    yield who, trial.trial.training_seed, Final(found.policy, np.asarray(result.test_scores), found.samples)
    if found.base is not None and result.base_test_scores:
        yield "base", None, Final(found.base, np.asarray(result.base_test_scores), found.samples)


def _start(run: RunData, trial: TrialState) -> object:
    return trial.trial.config.get("base", run.study.algorithm.base)
