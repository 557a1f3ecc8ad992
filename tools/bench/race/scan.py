"""ScAn-Bench: pre-training of language models (1,194 configurations) and of vision-language models (1,500).

The tables (package scan-bench 0.2.3, MIT) hold runs of many sizes, each with its own hyperparameters and a few
evaluations. Extremely randomised trees over log size, log amount of data, progress and hyperparameters fill the space
between; here size is the model axis and the amount of data is fixed. A step is 1/27 of a run; the score is the negative
validation loss. ``python -m race.scan`` prints the cross-validated errors
(Spearman 0.89 and 0.95, at the end of training 0.93 and 0.95).

Seconds are FLOPs at a rate of 1.25e14 a second: the recorded seconds of the vision-language models hang on the loading
of data alone (0.8 ms a sample at every width), those of the language models are not recorded.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.model_selection import GroupKFold

from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.errors import UserError
from hpcjf.study import Dimension, RealRange
from hpcjf.types import Config
from race.cube import Cube
from race.forest import Forest
from race.known import Known, unwatched
from race.problem import Array, Curve

VERSION = "0.2.3"
STEPS, RUNGS = 27, (3, 9, 27)
"""The tables know nothing before a tenth of a run: the first rung is the first step that is evaluated."""
FLOPS_PER_SECOND = 1.25e14
DIVERGES = 0.4
"""From this probability on; 150 of the 1,500 configurations reach it in cross-validation, 134 diverged."""


@dataclass(frozen=True, slots=True)
class Size:
    """``columns`` are the values of the suite's columns of size, ``flops`` those for a sample or token."""

    parameters: int
    columns: tuple[float, ...]
    flops: float


@dataclass(frozen=True, slots=True)
class Suite:
    """One of the two tables: its columns' names, and what the race takes from it.

    ``space`` is in the table's own names, the learning rate first. ``schedule``: share of the peak learning rate at a
    progress, given the hyperparameter ``shape``. ``amount``: samples or tokens of a full run.
    """

    file: str
    loss: str
    size: tuple[str, ...]
    data: str
    progress: str
    space: Mapping[str, Dimension]
    recipe: Config
    schedule: Callable[[Array, Array], Array]
    shape: str
    amount: float
    sizes: Mapping[str, Size]


def _trapezoid(progress: Array, cooldown: Array) -> Array:
    """Share of the peak learning rate: warm-up over 5 % of the run, a plateau, a linear cool-down at the end."""
    return np.minimum(np.minimum(progress / 0.05, 1.0), (1.0 - progress) / np.maximum(cooldown, 1e-9))


def _cosine(progress: Array, warmup: Array) -> Array:
    decay = 0.5 + 0.5 * np.cos(np.pi * (progress - warmup) / (1.0 - warmup))
    return np.where(progress < warmup, progress / np.maximum(warmup, 1e-9), decay)


LLM = Suite(
    file="scan_bench/llm/configs_intermediate_summary.csv",
    loss="valid_loss", size=("n_params",), data="n_tokens", progress="step_fraction",
    space={
        "lr": RealRange(low=1e-5, high=1e-2, log=True),
        "weight_decay": RealRange(low=1e-3, high=0.2, log=True),
        "beta1": RealRange(low=0.8, high=0.99),
        "beta2": RealRange(low=0.9, high=0.999),
        "cooldown_steps": RealRange(low=0.0, high=0.3),
    },
    recipe={"lr": 3e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "cooldown_steps": 0.2},
    schedule=_trapezoid, shape="cooldown_steps",
    amount=8e9,
    sizes={
        "35m": Size(35_000_000, (3.5e7,), 3.0e8),
        "120m": Size(120_000_000, (1.2e8,), 9.6e8),
        "420m": Size(420_000_000, (4.2e8,), 3.14e9),
    },
)  # fmt: skip
VLM = Suite(
    file="scan_bench/vlm/data.csv",
    loss="val_loss", size=("mparams", "vision_mparams"), data="total_samples_planned", progress="training_progress",
    space={
        "lr": RealRange(low=1e-5, high=5e-2, log=True),
        "wd": RealRange(low=1e-6, high=0.2, log=True),
        "warmup_fraction": RealRange(low=0.0, high=0.75),
        "beta1": RealRange(low=0.9, high=0.99),
        "beta2": RealRange(low=0.95, high=0.999),
        "eps": RealRange(low=1e-8, high=1e-6, log=True),
    },
    recipe={"lr": 5e-4, "wd": 0.1, "warmup_fraction": 0.1, "beta1": 0.9, "beta2": 0.98, "eps": 1e-7},
    schedule=_cosine, shape="warmup_fraction",
    amount=5e7,
    sizes={"w128": Size(11_590_000, (11.59, 2.83), 6.92e8), "w448": Size(81_860_000, (81.86, 30.54), 7.67e9)},
)  # fmt: skip
SUITES: Mapping[str, Suite] = {"llm": LLM, "vlm": VLM}
_PROGRESS = np.arange(RUNGS[0], STEPS + 1) / STEPS


class Scan(Known):
    """``scan-llm`` or ``scan-vlm``; only the latter has runs that diverge."""

    def __init__(self, kind: str, folder: Path | None = None) -> None:
        suite = self._suite = SUITES[kind]
        models = tuple(ModelFidelity(name, size.parameters) for name, size in suite.sizes.items())
        super().__init__(f"scan-{kind}", suite.space, suite.recipe, models, RUNGS)
        table = read(suite, folder)
        self._loss = Forest(table.inputs[table.sound], np.log(table.loss[table.sound, None]))
        self._ends = _Ends(table) if table.breaks.any() else None

    def _run(self, point: Array, model: str, rng: np.random.Generator) -> Curve:
        score = np.full(STEPS, np.nan)
        score[RUNGS[0] - 1 :] = -np.exp(self._loss.predict(self._inputs(point, model, _PROGRESS))[:, 0])
        full = self._suite.sizes[model].flops * self._suite.amount / FLOPS_PER_SECOND
        broken = self._ends.step(self._inputs(point, model, np.ones(1))) if self._ends else None
        return unwatched(np.arange(1.0, STEPS + 1) * (full / STEPS), score, broken)

    def _finals(self, points: Array) -> Array:
        inputs = self._inputs(points, self.models[-1].name, np.ones(len(points)))
        values = -np.exp(self._loss.predict(inputs)[:, 0])
        return np.where(self._ends.diverges(inputs), np.nan, values) if self._ends else values

    def _inputs(self, points: Array, model: str, progress: Array) -> Array:
        """``[n, d]`` for the progress ``[n]`` of the runs at ``points``, ``[n, d]`` or one for all."""
        points = np.broadcast_to(points, (len(progress), len(self.space)))
        size = np.tile(np.log(self._suite.sizes[model].columns), (len(progress), 1))
        return _inputs(self._suite, points, size, np.full(len(progress), np.log(self._suite.amount)), progress)


@dataclass(frozen=True, slots=True)
class Table:
    """``inputs`` ``[n, d]`` are those of the trees; ``breaks`` marks the row at which a run diverged."""

    inputs: Array
    progress: Array
    loss: Array
    run: NDArray[np.int64]
    breaks: NDArray[np.bool_]

    @property
    def sound(self) -> NDArray[np.bool_]:
        return np.isfinite(self.loss) & ~self.breaks

    @property
    def runs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The last row of each run, and whether the run diverged there."""
        last = len(self.run) - 1 - np.unique(self.run[::-1], return_index=True)[1]
        return last, self.breaks[last]


class _Ends:
    """Which runs diverge, and at which step: where the nearest run that diverged did."""

    def __init__(self, table: Table) -> None:
        last, diverged = table.runs
        self._chance = Forest(_standing(table.inputs[last]), diverged[:, None].astype(np.float64))
        self._known = _standing(table.inputs[last[diverged]])
        self._scale = self._known.std(axis=0)
        self._progress = table.progress[last[diverged]]

    def diverges(self, inputs: Array) -> NDArray[np.bool_]:
        """``[n]``."""
        return self._chance.predict(_standing(inputs))[:, 0] >= DIVERGES

    def step(self, inputs: Array) -> int | None:
        if not self.diverges(inputs)[0]:
            return None
        distances = np.sum(((self._known - _standing(inputs)) / self._scale) ** 2, axis=1)
        return max(1, int(np.ceil(STEPS * self._progress[np.argmin(distances)])))


def _inputs(suite: Suite, points: Array, size: Array, amount: Array, progress: Array) -> Array:
    """The trees' inputs: the unit cube, log size ``[n, k]``, log amount of data; then what changes during a run."""
    names, rate = list(suite.space), suite.space["lr"]
    assert isinstance(rate, RealRange)
    lr = np.log(rate.low) + points[:, 0] * np.log(rate.high / rate.low)
    shape = suite.space[suite.shape]
    assert isinstance(shape, RealRange)
    now = suite.schedule(progress, shape.low + points[:, names.index(suite.shape)] * (shape.high - shape.low))
    changing = [progress, amount + np.log(progress), lr + np.log(np.maximum(now, 0.01))]
    return np.column_stack([points, size, amount, lr + 0.5 * size[:, 0], *changing])


def _standing(inputs: Array) -> Array:
    return inputs[:, :-3]


def read(suite: Suite, folder: Path | None = None) -> Table:
    """The rows in the order of runs and progress, from the package in ``folder``, which is fetched where it lacks."""
    folder = folder or Path(os.environ.get("HPCJF_CACHE") or Path.home() / ".cache/hpcjf") / "bench/scan"
    wheel = folder / f"scan_bench-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        _download(wheel)
    with zipfile.ZipFile(wheel) as archive, archive.open(suite.file) as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw)))

    def column(name: str) -> Array:
        return np.array([float(row[name] or "nan") for row in rows])

    cube = Cube(suite.space)
    points = cube.points([{name: float(row[name]) for name in suite.space} for row in rows])
    size = np.log(np.column_stack([column(name) for name in suite.size]))
    amount, progress = np.log(column(suite.data)), column(suite.progress)
    inputs = _inputs(suite, points, size, amount, progress)
    breaks = np.array([row.get("epoch_diverged") == "True" for row in rows])
    order = np.lexsort([progress, column("config_id")])
    run = column("config_id").astype(np.int64)
    return Table(inputs[order], progress[order], column(suite.loss)[order], run[order], breaks[order])


def _download(wheel: Path) -> None:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, f"scan-bench=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise UserError(f"scan-bench cannot be fetched: {why}", where=str(wheel), fix="put the wheel there by hand")
        os.replace(Path(scratch) / wheel.name, wheel)


def errors(suite: Suite, folder: Path | None = None) -> dict[str, float]:
    """Of five-fold cross-validation by configuration: Spearman and RMSE of the loss, at all progress and at the end."""
    table = read(suite, folder)
    inputs, loss, run = table.inputs[table.sound], table.loss[table.sound], table.run[table.sound]
    guess, end = np.empty_like(loss), table.progress[table.sound] > 0.999
    for known, left_out in GroupKFold(5).split(inputs, groups=run):
        guess[left_out] = np.exp(Forest(inputs[known], np.log(loss[known, None])).predict(inputs[left_out])[:, 0])
    figures = {}
    for name, rows in (("", np.ones(len(loss), dtype=bool)), ("final_", end)):
        figures[f"{name}spearman"] = float(spearmanr(guess[rows], loss[rows])[0])
        figures[f"{name}rmse"] = float(np.sqrt(np.mean((guess[rows] - loss[rows]) ** 2)))
    return figures


if __name__ == "__main__":
    for kind, each in SUITES.items():
        print(kind, *(f"{name} {value:.3f}" for name, value in errors(each).items()))
