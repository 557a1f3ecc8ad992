"""What final runs measured beside the test score: metrics of the tasks, win rates, pass@k, and a check of capability.

Differences are paired by training seed and by row; the base model stands beside every seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from hpcjf.analysis.columns import METRICS, passes
from hpcjf.analysis.compare import Estimate
from hpcjf.analysis.load import RunData
from hpcjf.analysis.shares import Array, share
from hpcjf.analysis.sides import Side, Sides, Values, sides
from hpcjf.analysis.tables import Cell


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
    """``curves`` hold pass@k by model and k; ``change`` says in a sentence what training did to it, ``notes`` what is
    left out."""

    lines: tuple[Line, ...]
    curves: Mapping[str, Mapping[int, Estimate]]
    change: str
    notes: tuple[str, ...]


def evaluate(run: RunData) -> Evaluation | None:
    """None where the final runs have nothing to show."""
    found = sides(run)
    lines = [_line(name, found, values) for name, values in METRICS.items()]
    curves: dict[str, dict[int, Estimate]] = {"winner": {}, "recipe": {}, "base": {}}
    changes: dict[int, Estimate] = {}
    for k in sorted({1, *run.study.evaluation.pass_at}):
        line = _line(f"pass@{k}", found, partial(passes, k=k))
        lines.append(line)
        for side, name in ((line.winner, "winner"), (line.recipe, "recipe"), (line.base, "base")):
            if side is not None:
                curves[name][k] = side
        if line.over_base is not None:
            changes[k] = line.over_base
    lines.append(_line("capability, multiple choice", found, lambda final: np.asarray(final.measured.choices)))
    lines.append(_win_rate("win rate against the recipe", found.winner, found.recipe))
    lines.append(_win_rate("win rate against the base", found.winner, found.base))
    shown = tuple(line for line in lines if any((line.base, line.recipe, line.winner)))
    kept = {name: curve for name, curve in curves.items() if curve}
    return Evaluation(shown, kept, change(changes), found.notes) if shown or found.notes else None


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


def _line(name: str, found: Sides, values: Values) -> Line:
    ours, theirs, untrained = (side.table(values) for side in (found.winner, found.recipe, found.base))
    return Line(
        name,
        share(list(untrained.values())),
        share(list(theirs.values())),
        share(list(ours.values())),
        _difference(ours, theirs),
        _difference(ours, untrained),
    )


def _win_rate(name: str, ours: Side, theirs: Side) -> Line:
    """Share of the test rows on which the winner scores higher, ties half."""
    pairs = _paired(ours.table(lambda final: final.scores), theirs.table(lambda final: final.scores))
    return Line(name, None, None, share([(a > b) + 0.5 * (a == b) for a, b in pairs]), None, None)


def _difference(ours: Mapping[int | None, Array], theirs: Mapping[int | None, Array]) -> Estimate | None:
    pairs = _paired(ours, theirs)
    return share([mine for mine, _ in pairs], [other for _, other in pairs])


def _paired(ours: Mapping[int | None, Array], theirs: Mapping[int | None, Array]) -> list[tuple[Array, Array]]:
    """By training seed; a model without training stands beside every seed."""
    found = ((array, theirs.get(seed, theirs.get(None))) for seed, array in ours.items())
    return [(mine, other) for mine, other in found if other is not None]
