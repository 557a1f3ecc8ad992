"""Small stand-ins for the benchmark's files, in their layouts, made from known functions."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
from scipy.stats import qmc

from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from race.cube import Cube
from race.lcbench import SPACE as LCBENCH_SPACE
from race.problem import Array
from race.scan import LLM, VERSION, VLM, Suite

STEPS, EVERY, CONFIGURATIONS, PAIRS = 60, 10, 48, 16
NOISE = 0.02
"""Standard deviation of one evaluation between seeds."""
PARAMETERS = {"xs": 100_000, "s": 450_000, "m": 1_000_000, "l": 4_700_000}
STARTUP = {"xs": 4.0, "s": 5.0, "m": 6.0, "l": 9.0}
SPACE: dict[str, Dimension] = {
    "learning_rate": RealRange(low=3e-6, high=3e-3, log=True),
    "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
    "clip_range": RealRange(low=0.05, high=0.4),
    "grad_clip": RealRange(low=0.1, high=10.0, log=True),
    "kl_coef": RealRange(low=1e-4, high=0.1, log=True),
    "rollouts": IntegerRange(type="integer", low=4, high=12),
}
_BEST_RATE = {"xs": 0.6, "s": 0.45, "m": 0.35, "l": 0.3}


def final_scores(points: Array, model: str) -> Array:
    """Of the noise-free curves at ``points`` of the unit cube: a hump over the learning rate, less for large models."""
    hump = np.exp(-(((points[:, 0] - 0.1 * points[:, 1] - _BEST_RATE[model]) / 0.3) ** 2))
    return np.asarray(0.05 + 0.35 * hump + 0.05 * points[:, 5])


def write_surfaces(path: Path, diverged: int | None = None) -> Path:
    """Sums on four models; ``l`` has 16 configurations, the first 16 have two seeds but on ``l``.

    ``diverged``: a configuration whose training on ``m`` diverges at step 25.
    """
    rng = np.random.default_rng(1)
    configs = Cube(SPACE).configs(qmc.Sobol(len(SPACE), rng=3).random(64)[:CONFIGURATIONS])
    points = Cube(SPACE).points(configs)
    runs = [(m, c, 0) for m in PARAMETERS for c in range(16 if m == "l" else CONFIGURATIONS)]
    runs += [(m, c, 1) for m in ("xs", "s", "m") for c in range(PAIRS)]
    names = ("configuration", "task", "model", "seed", "cause", "steps")
    curves: dict[str, list[object]] = {name: [] for name in names}
    traces: dict[str, list[Array]] = {}
    for model, each, seed in runs:
        end = 25 if model == "m" and each == diverged else STEPS
        row = (each, "arithmetic", model, seed, "diverged" if end < STEPS else "completed", end)
        for name, value in zip(curves, row, strict=True):
            curves[name].append(value)
        for name, trace in _traces(points[each], model, end, rng).items():
            traces.setdefault(name, []).append(trace)
    with h5py.File(path, "w") as file:
        for name in SPACE:
            column = [config[name] for config in configs]
            file[f"configurations/{name}"] = np.array(column, "S" if isinstance(column[0], str) else None)
        for name, values in curves.items():
            file[f"curves/{name}"] = np.array(values, "S" if isinstance(values[0], str) else None)
        for name, rows in traces.items():
            file[f"traces/{name}"] = np.array(rows, np.float32)
        space = {name: each.model_dump() for name, each in SPACE.items()} | {"sequence": "Sobol"}
        attributes = {"parameters": PARAMETERS, "startup_cpu_seconds": STARTUP, "algorithm": {"eval_every": EVERY}}
        for name, value in (attributes | {"space": space}).items():
            file.attrs[name] = json.dumps(value)
    return path


def _traces(point: Array, model: str, end: int, rng: np.random.Generator) -> dict[str, Array]:
    steps = np.arange(1, STEPS + 1)
    mean = 0.1 + (final_scores(point[None], model)[0] - 0.1) * (1 - np.exp(-steps / 15)) / (1 - np.exp(-STEPS / 15))
    score = np.full(STEPS, np.nan)
    score[EVERY - 1 :: EVERY] = mean[EVERY - 1 :: EVERY] + NOISE * rng.standard_normal(STEPS // EVERY)
    pace = PARAMETERS[model] / 1e6 * (1 + point[5])
    traces = {
        "eval_score": score,
        "kl": 0.01 * 10 ** (2 * point[0]) * (1 - np.exp(-steps / 20)) * np.exp(0.1 * rng.standard_normal(STEPS)),
        "reward_mean": mean + 0.05 * rng.standard_normal(STEPS),
        "reward_std": np.full(STEPS, 0.4),
        "cpu_seconds": np.cumsum(pace * (1 + 0.02 * rng.random(STEPS))),
    }
    return {name: np.where(steps <= end, trace, np.nan) for name, trace in traces.items()}


def write_lcbench(folder: Path, task: str) -> Path:
    """Loss falls towards a bowl over the unit cube; returns the folder above ``lcbench``."""
    rng = np.random.default_rng(2)
    points = rng.random((300, len(LCBENCH_SPACE)))
    configs, epochs = Cube(LCBENCH_SPACE).configs(points), np.arange(1, 53)
    curves = np.zeros((300, 52, 6), np.float32)
    curves[..., 0] = (1 + points[:, :1]) * epochs
    curves[..., 2] = 0.3 + ((points - 0.4) ** 2).sum(axis=1)[:, None] + 1.0 / epochs
    (folder / "lcbench").mkdir(parents=True)
    values = [[1.0, *(float(config[name]) for name in LCBENCH_SPACE)] for config in configs]
    np.savez(folder / f"lcbench/task_{task}.npz", X=values, names=["epoch", *LCBENCH_SPACE], Y=curves)
    return folder


def write_scan(folder: Path) -> Path:
    """Both tables in a wheel; runs of the second diverge half-way at learning rates in the top fifth."""
    with zipfile.ZipFile(folder / f"scan_bench-{VERSION}-py3-none-any.whl", "w") as wheel:
        for suite in (LLM, VLM):
            wheel.writestr(suite.file, _scan_rows(suite))
    return folder


def _scan_rows(suite: Suite) -> str:
    rng, text = np.random.default_rng(3), io.StringIO()
    columns = ["config_id", *suite.space, *suite.size, suite.data, suite.progress, suite.loss, "epoch_diverged"]
    writer = csv.writer(text)
    writer.writerow(columns)
    sizes = np.log([size.columns for size in suite.sizes.values()])
    for run in range(200):
        place = rng.random()
        point = rng.random(len(suite.space))
        config = Cube(suite.space).configs(point[None])[0]
        size = np.exp(sizes[0] + place * (sizes[-1] - sizes[0]))
        for progress in (0.1, 0.25, 0.5, 0.75, 1.0):
            loss = 1.0 + (point[0] - 0.6 + 0.2 * place) ** 2 + 1.0 - 0.5 * progress - 0.3 * place
            broken = suite is VLM and point[0] > 0.8 and progress == 0.5
            writer.writerow([run, *config.values(), *size, suite.amount, progress, "" if broken else loss, str(broken)])
            if broken:
                break
    return text.getvalue()
