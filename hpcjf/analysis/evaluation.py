"""What final runs measured beside the test score: metrics of the tasks, win rates, pass@k, and a check of capability.

Differences are paired by training seed and by row; the base model stands beside every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hpcjf.analysis.compare import DRAWS, Estimate, estimate
from hpcjf.analysis.load import RunData
from hpcjf.analysis.tables import Cell
from hpcjf.core.lifecycle import TrialState
from hpcjf.core.pass_at_k import pass_at_k
from hpcjf.store.messages import Measured
from hpcjf.tasks.metrics import CORRECT, MLPERF_EXACT, PLP_SIMILARITY, RACE_FORCED, RACE_GUESS, RACE_LABEL
from hpcjf.types import Purpose

Array = NDArray[np.float64]
Places = NDArray[np.int64]
_MEANS = {
    MLPERF_EXACT: "mlperf, exact match",
    PLP_SIMILARITY: "plp, similarity",
    RACE_FORCED: "data race, forced choice",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the three models, and differences; None where it was not measured."""

    name: str
    base: Estimate | None
    recipe: Estimate | None
    winner: Estimate | None
    over_recipe: Estimate | None
    over_base: Estimate | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``curves`` hold pass@k by model and k; ``change`` says in a sentence what training did to it."""

    lines: tuple[Line, ...]
    curves: Mapping[str, Mapping[int, Estimate]]
    change: str


@dataclass(frozen=True, slots=True)
class _Side:
    """Of one model, by training seed: figures and test scores. The base has the one seed None."""

    measured: Mapping[int | None, Measured]
    scores: Mapping[int | None, Sequence[float]]

    def table(self, values: Callable[[Measured], Array | None]) -> dict[int | None, Array]:
        found = ((seed, values(each)) for seed, each in self.measured.items())
        return {seed: array for seed, array in found if array is not None and array.size}


def evaluate(run: RunData) -> Evaluation | None:
    """None where no final run has measured anything."""
    winner, recipe, base, samples = _sides(run)
    if not any(side.measured for side in (winner, recipe, base)):
        return None
    lines = [_race(winner, recipe, base)]
    for column, name in _MEANS.items():
        lines.append(_line(name, winner, recipe, base, partial(_column, name=column)))
    curves: dict[str, dict[int, Estimate]] = {"winner": {}, "recipe": {}, "base": {}}
    changes: dict[int, Estimate] = {}
    for k in sorted({1, *run.study.evaluation.pass_at}):
        line = _line(f"pass@{k}", winner, recipe, base, partial(_passes, samples=samples, k=k))
        lines.append(line)
        for side, name in ((line.winner, "winner"), (line.recipe, "recipe"), (line.base, "base")):
            if side is not None:
                curves[name][k] = side
        if line.over_base is not None:
            changes[k] = line.over_base
    lines.append(_line("capability, multiple choice", winner, recipe, base, lambda each: np.asarray(each.choices)))
    lines.append(_win_rate("win rate against the recipe", winner, recipe))
    lines.append(_win_rate("win rate against the base", winner, base))
    shown = tuple(line for line in lines if any((line.base, line.recipe, line.winner)))
    return Evaluation(shown, {name: curve for name, curve in curves.items() if curve}, change(changes))


def table(found: Evaluation) -> tuple[list[str], list[list[Cell]]]:
    """Headings and one row a figure, with 95 % intervals."""

    def cell(value: Estimate | None, sign: str = "") -> Cell:
        if value is None:
            return Cell("–", "", "number")
        tone = "" if not sign or value.low <= 0 <= value.high else " good" if value.mean > 0 else " bad"
        text = f"{value.mean:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"
        return Cell(text, value.mean, f"number{tone}")

    rows = [
        [
            Cell(line.name, line.name),
            *(cell(value) for value in (line.base, line.recipe, line.winner)),
            *(cell(value, "+") for value in (line.over_recipe, line.over_base)),
        ]
        for line in found.lines
    ]
    return ["figure", "base", "recipe", "winner", "winner − recipe", "winner − base"], rows


def change(over_base: Mapping[int, Estimate]) -> str:
    """Sharpening or expansion (arXiv 2606.04272), from the gains in pass@k over the base model by k; "" without two."""
    if len(over_base) < 2:
        return ""
    first, last = min(over_base), max(over_base)
    up, wide = over_base[first].low > 0, over_base[last].low > 0
    both = f"pass@{first} {over_base[first].mean:+.3f}, pass@{last} {over_base[last].mean:+.3f}"
    if up and wide:
        return f"Expansion: training raised both ({both})."
    if up:
        return f"Sharpening: training raised pass@{first}, and not clearly pass@{last} ({both})."
    return f"Neither sharpening nor expansion is clear ({both})."


def _sides(run: RunData) -> tuple[_Side, _Side, _Side, int]:
    measured: dict[Purpose, dict[int | None, Measured]] = {Purpose.FINAL: {}, Purpose.RECIPE: {}}
    scores: dict[Purpose, dict[int | None, Sequence[float]]] = {Purpose.FINAL: {}, Purpose.RECIPE: {}}
    base, base_scores, samples = dict[int | None, Measured](), dict[int | None, Sequence[float]](), 0
    for purpose, trial in _finals(run):
        key = (trial.trial.number, trial.attempts[-1].number) if trial.attempts else (-1, -1)
        found, result = run.evaluations.get(key), run.results.get(key)
        if found is None or result is None or not result.test_scores:
            continue
        samples = found.samples
        measured[purpose][trial.trial.training_seed] = found.policy
        scores[purpose][trial.trial.training_seed] = result.test_scores
        if found.base is not None and not base and result.base_test_scores:
            base[None], base_scores[None] = found.base, result.base_test_scores
    sides = [_Side(measured[purpose], scores[purpose]) for purpose in (Purpose.FINAL, Purpose.RECIPE)]
    return sides[0], sides[1], _Side(base, base_scores), samples


def _finals(run: RunData) -> Iterable[tuple[Purpose, TrialState]]:
    return ((purpose, trial) for purpose in (Purpose.FINAL, Purpose.RECIPE) for trial in run.state.of(purpose))


def _column(measured: Measured, name: str) -> Array | None:
    """Of the rows that have it."""
    values = [value for value in measured.rows.get(name, ()) if value is not None]
    return np.asarray(values, dtype=np.float64) if values else None


def _passes(measured: Measured, samples: int, k: int) -> Array | None:
    counts = _column(measured, CORRECT)
    return None if counts is None else np.asarray([pass_at_k(samples, int(count), k) for count in counts])


def _line(name: str, winner: _Side, recipe: _Side, base: _Side, values: Callable[[Measured], Array | None]) -> Line:
    ours, theirs, untrained = (side.table(values) for side in (winner, recipe, base))
    return Line(
        name,
        _estimate(untrained),
        _estimate(theirs),
        _estimate(ours),
        _difference(ours, theirs),
        _difference(ours, untrained),
    )


def _win_rate(name: str, ours: _Side, theirs: _Side) -> Line:
    """Share of the test rows on which the winner scores higher, ties half."""
    pairs = _paired(
        {seed: np.asarray(scores) for seed, scores in ours.scores.items()},
        {seed: np.asarray(scores) for seed, scores in theirs.scores.items()},
    )
    wins = [(a > b) + 0.5 * (a == b) for a, b in pairs]
    return Line(name, None, None, estimate(np.stack(wins)) if wins else None, None, None)


def _race(winner: _Side, recipe: _Side, base: _Side) -> Line:
    """F1 with positive = yes, over the race rows of both languages: 2 hits over guesses and labels."""

    def parts(measured: Measured) -> Array | None:
        label, guess = _column(measured, RACE_LABEL), _column(measured, RACE_GUESS)
        return None if label is None or guess is None else np.stack([2 * label * guess, label + guess], -1)

    ours, theirs, untrained = (side.table(parts) for side in (winner, recipe, base))
    over_recipe, over_base = _paired(ours, theirs), _paired(ours, untrained)
    return Line(
        "data race, F1",
        _share(list(untrained.values())),
        _share(list(theirs.values())),
        _share(list(ours.values())),
        _share([mine for mine, _ in over_recipe], [other for _, other in over_recipe]),
        _share([mine for mine, _ in over_base], [other for _, other in over_base]),
    )


def _share(ours: Sequence[Array], theirs: Sequence[Array] | None = None) -> Estimate | None:
    """Of tables ``[rows, 2]`` by seed the sum of the first over that of the second column, or the difference of two."""
    if not ours:
        return None
    tables = [np.stack(side) for side in (ours, theirs) if side is not None]
    seeds, rows, _ = tables[0].shape
    rng, draws = np.random.default_rng(0), np.empty(DRAWS)

    def value(picked: Places, chosen: Places) -> float:
        sums = [table[picked][:, chosen].sum((0, 1)) for table in tables]
        shares = [float(top / bottom) if bottom else 0.0 for top, bottom in sums]
        return shares[0] - (shares[1] if len(shares) > 1 else 0.0)

    for draw in range(DRAWS):
        draws[draw] = value(rng.integers(seeds, size=(seeds,)), rng.integers(rows, size=(rows,)))
    everything = np.arange(rows)
    by_seed = tuple(value(np.array([seed]), everything) for seed in range(seeds))
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(value(np.arange(seeds), everything), float(low), float(high), by_seed, rows)


def _estimate(table: Mapping[int | None, Array]) -> Estimate | None:
    return estimate(np.stack(list(table.values()))) if table else None


def _difference(ours: Mapping[int | None, Array], theirs: Mapping[int | None, Array]) -> Estimate | None:
    pairs = _paired(ours, theirs)
    return estimate(np.stack([a - b for a, b in pairs])) if pairs else None


def _paired(ours: Mapping[int | None, Array], theirs: Mapping[int | None, Array]) -> list[tuple[Array, Array]]:
    """By training seed; a model without training stands beside every seed."""
    found = ((array, theirs.get(seed, theirs.get(None))) for seed, array in ours.items())
    return [(mine, other) for mine, other in found if other is not None and other.shape == mine.shape]
