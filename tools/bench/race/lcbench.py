"""Learning curves of small networks on tabular data: 1,000 configurations of 7 hyperparameters, 52 epochs.

The tables were evaluated from the public surrogate of YAHPO Gym (Pfisterer et al. 2022) for LCBench (Zimmer et al.
2021). Between their points stand extremely randomised trees on the leading principal components of the logarithms of
cross-entropy and seconds. ``python -m race.lcbench`` prints their cross-validated error
(Spearman of the final cross-entropy 0.90 to 0.95).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.model_selection import KFold

from hpcjf.core.fidelity import rungs
from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.errors import UserError
from hpcjf.study import Dimension, IntegerRange, RealRange
from hpcjf.types import Config
from race.cube import Cube
from race.forest import CurveForest
from race.known import Known, unwatched
from race.problem import Array, Curve

EPOCHS = 52
SPACE: dict[str, Dimension] = {
    "batch_size": IntegerRange(type="integer", low=16, high=512, log=True),
    "learning_rate": RealRange(low=1e-4, high=0.1, log=True),
    "momentum": RealRange(low=0.1, high=0.99),
    "weight_decay": RealRange(low=1e-5, high=0.1),
    "num_layers": IntegerRange(type="integer", low=1, high=5),
    "max_units": IntegerRange(type="integer", low=64, high=1024, log=True),
    "max_dropout": RealRange(low=0.0, high=1.0),
}
RECIPE: Config = {
    "batch_size": 128, "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0.01, "num_layers": 3,
    "max_units": 256, "max_dropout": 0.2,
}  # fmt: skip


class LCBench(Known):
    """One of the tables, by its OpenML task; the score is the negative validation cross-entropy."""

    def __init__(self, task: str, folder: Path | None = None) -> None:
        super().__init__(f"lcbench-{task}", SPACE, RECIPE, (ModelFidelity("one", 1),), rungs(2, EPOCHS, 3.0))
        inputs, loss, seconds = table(task, folder)
        self._loss, self._seconds = CurveForest(inputs, loss), CurveForest(inputs, seconds)

    def _run(self, point: Array, model: str, rng: np.random.Generator) -> Curve:
        seconds = np.exp(self._seconds.predict(point[None])[0])
        return unwatched(seconds, -np.exp(self._loss.predict(point[None])[0]))

    def _finals(self, points: Array) -> Array:
        return -np.exp(self._loss.predict(points)[:, -1])


def table(task: str, folder: Path | None = None) -> tuple[Array, Array, Array]:
    """Points of the unit cube ``[1000, 7]``; log cross-entropy and log seconds since the start, ``[1000, 52]``."""
    folder = folder or Path(os.environ.get("HPCJF_TEST_DATA", "../shared/data"))
    path = folder / "lcbench" / f"task_{task}.npz"
    if not path.exists():
        raise UserError("no such table", where=str(path), fix="name the folder above lcbench in HPCJF_TEST_DATA")
    with np.load(path) as data:
        names, values, curves = data["names"].tolist(), data["X"], data["Y"].astype(np.float64)
    configs: list[Config] = [{name: row[names.index(name)] for name in SPACE} for row in values]
    return Cube(SPACE).points(configs), np.log(curves[..., 2]), np.log(np.maximum.accumulate(curves[..., 0], axis=1))


def errors(task: str, folder: Path | None = None) -> dict[str, float]:
    """Of five-fold cross-validation by configuration: Spearman and RMSE of the final score, RMSE of log seconds."""
    inputs, loss, seconds = table(task, folder)
    guessed = {"loss": np.empty_like(loss), "seconds": np.empty_like(seconds)}
    for known, left_out in KFold(5, shuffle=True, random_state=0).split(inputs):
        for name, curves in (("loss", loss), ("seconds", seconds)):
            guessed[name][left_out] = CurveForest(inputs[known], curves[known]).predict(inputs[left_out])
    guess, final = guessed["loss"][:, -1], loss[:, -1]
    return {
        "spearman": float(spearmanr(guess, final)[0]),
        "rmse": float(np.sqrt(np.mean((np.exp(guess) - np.exp(final)) ** 2))),
        "rmse_log_seconds": float(np.sqrt(np.mean((guessed["seconds"] - seconds) ** 2))),
    }


if __name__ == "__main__":
    for each in sys.argv[1:] or ("126025", "3945", "7593"):
        print(each, *(f"{name} {value:.3f}" for name, value in errors(each).items()))
