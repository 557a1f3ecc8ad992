"""Our own surfaces: GRPO on small models, from recorded training curves (``race.recording``) to all configurations.

``python -m race.surfaces FILE`` prints the cross-validated errors and the rank correlations between the models. On the
recording that lies beside the benchmark the final score is met to 0.018-0.041 (Spearman 0.84-0.97), where the runs of
two seeds differ by 0.009-0.037 and extremely randomised trees on principal components reach 0.025-0.058.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from scipy.stats import spearmanr

from hpcjf.core.fidelity import rungs
from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.errors import HpcjfError, UserError
from race.cube import Cube
from race.known import Known
from race.problem import Array, Curve
from race.recording import FILE, Recording, read
from race.surface import Surface

RECIPE = Path(__file__).parents[3] / "configs/recipes/tiny_arithmetic.yaml"
_FOLDS = 12


class Surfaces(Known):
    """A race between recorded models, from proxy to target; the score is the share of right answers on held-out rows.

    ``startup``: ``scaled`` is 1 % of the target's mean full training, as at the paper's scale; ``recorded`` are the
    CPU seconds that a job of ours takes before its first step, a fifth and more of a training this short.
    """

    def __init__(
        self,
        task: str,
        models: Sequence[str],
        startup: Literal["scaled", "recorded"] = "scaled",
        path: Path = FILE,
    ) -> None:
        recording = read(path)
        unknown = set(models) - set(recording.parameters)
        if unknown:
            raise UserError(f"no curves of {', '.join(sorted(unknown))}", where=str(path), fix="name recorded models")
        recipe = yaml.safe_load(RECIPE.read_text())["values"]
        every = recording.eval_every
        super().__init__(
            f"{task} {'+'.join(models[:-1])}>{models[-1]}",
            recording.space,
            {name: recipe[name] for name in recording.space},
            tuple(ModelFidelity(model, recording.parameters[model]) for model in models),
            tuple(every * round(rung / every) for rung in rungs(every, recording.horizon, 3.0)),
            dynamics=True,
        )
        self._surfaces = {model: Surface(recording, task, model) for model in models}
        self._startup = recording.startup_seconds if startup == "recorded" else None

    def startup_seconds(self, model: str) -> float:
        return self._startup[model] if self._startup else super().startup_seconds(model)

    def _run(self, point: Array, model: str, rng: np.random.Generator) -> Curve:
        return self._surfaces[model].run(point, rng)

    def _finals(self, points: Array) -> Array:
        surface = self._surfaces[self.models[-1].name]
        finals = surface.mean("score", points)[:, -1].clip(0.0, 1.0)
        return np.where(surface.broken(points) > 0, np.nan, finals)


def finals(recording: Recording, task: str, model: str) -> dict[int, Array]:
    """The final scores of the sound runs of each recorded configuration."""
    rows = recording.rows(task, model)
    rows = rows[~recording.diverged[rows]]
    last = recording.traces["eval_score"][rows, -1]
    own = recording.configuration[rows]
    return {int(each): last[own == each] for each in np.unique(own)}


def errors(recording: Recording, task: str, model: str) -> dict[str, float]:
    """Of cross-validation by configuration, against seed averages; ``seed_noise`` is the spread of one run."""
    known = finals(recording, task, model)
    guesses: dict[int, float] = {}
    places = Cube(recording.space).points(recording.configs)
    for fold in range(_FOLDS):
        hidden = [each for each in known if each % _FOLDS == fold]
        if hidden:
            surface = Surface(recording, task, model, range(fold, len(places), _FOLDS), kinds=("score",))
            guesses |= dict(zip(hidden, surface.mean("score", places[hidden])[:, -1].tolist(), strict=True))
    truth, guess = np.array([known[each].mean() for each in guesses]), np.array(list(guesses.values()))
    spreads = [own.var(ddof=1) for own in known.values() if len(own) > 1]
    return {
        "configurations": len(known),
        "spearman": float(spearmanr(guess, truth)[0]),
        "rmse": float(np.sqrt(np.mean((guess - truth) ** 2))),
        "spread": float(truth.std()),
        "seed_noise": float(np.sqrt(np.mean(spreads))) if spreads else float("nan"),
    }


def correlations(recording: Recording, task: str) -> Iterator[tuple[str, str, float, int]]:
    """Pairs of models with the Spearman correlation of their seed-averaged final scores and how many they share."""
    known = {model: finals(recording, task, model) for model in recording.parameters}
    for one, other in combinations([model for model, own in known.items() if own], 2):
        shared = sorted(known[one].keys() & known[other].keys())
        means = [[known[model][each].mean() for each in shared] for model in (one, other)]
        yield one, other, float(spearmanr(*means)[0]), len(shared)


def main(arguments: Sequence[str]) -> int:
    try:
        recording = read(Path(arguments[0]) if arguments else FILE)
    except HpcjfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for task in sorted(set(recording.task)):
        print(f"{task}\nmodel  configurations  Spearman  RMSE    spread  seed noise   (final score, cross-validated)")
        for model in recording.parameters:
            if len(recording.rows(task, model)):
                e = errors(recording, task, model)
                figures = f"{e['spearman']:8.3f}  {e['rmse']:.4f}  {e['spread']:.4f}  {e['seed_noise']:.4f}"
                print(f"{model:5}  {e['configurations']:14.0f}  {figures}")
        for one, other, rho, shared in correlations(recording, task):
            print(f"{one} and {other}: Spearman {rho:.3f} over {shared} configurations")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
