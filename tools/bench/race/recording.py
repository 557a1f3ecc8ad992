"""What ``tools/record_surface`` wrote: real training curves of the built-in models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from hpcjf.errors import UserError
from hpcjf.study import Dimension
from hpcjf.types import Cause, Config
from race.problem import Array, Curve

FILE = Path(__file__).parents[1] / "surfaces.h5"


@dataclass(frozen=True, slots=True)
class Recording:
    """Curves ``[n, T]``; all that is per curve is ``[n]``. ``parameters`` names the models from small to large."""

    space: Mapping[str, Dimension]
    configs: tuple[Config, ...]
    parameters: Mapping[str, int]
    startup_seconds: Mapping[str, float]
    eval_every: int
    task: NDArray[np.str_]
    model: NDArray[np.str_]
    configuration: NDArray[np.int64]
    seed: NDArray[np.int64]
    diverged: NDArray[np.bool_]
    steps: NDArray[np.int64]
    traces: Mapping[str, Array]

    @property
    def horizon(self) -> int:
        """Steps of a whole curve."""
        return int(self.traces["kl"].shape[1])

    def rows(self, task: str, model: str) -> NDArray[np.intp]:
        return np.flatnonzero((self.task == task) & (self.model == model))

    def curve(self, row: int) -> Curve:
        """A diverged one goes on without anything known."""
        seconds, score, kl, reward, reward_std = (
            self.traces[name][row] for name in ("cpu_seconds", "eval_score", "kl", "reward_mean", "reward_std")
        )
        known = np.fmax.accumulate(np.nan_to_num(seconds))
        broken = int(self.steps[row]) if self.diverged[row] else None
        return Curve(known, score, kl, reward, reward_std, broken)


def read(path: Path = FILE) -> Recording:
    """Raises UserError where the file is missing or has other contents."""
    try:
        with h5py.File(path) as file:
            return _recording(file)
    except (OSError, KeyError) as error:
        fix = "make the file with tools/record_surface"
        raise UserError(f"no recording of training curves: {error}", where=str(path), fix=fix) from error


def recorded_curves(path: Path = FILE) -> list[tuple[str, str, Curve]]:
    """Task, model and curve of every recorded training run."""
    recording = read(path)
    names = zip(recording.task.tolist(), recording.model.tolist(), strict=True)
    return [(task, model, recording.curve(row)) for row, (task, model) in enumerate(names)]


def _recording(file: Any) -> Recording:
    attributes = {
        name: json.loads(file.attrs[name]) for name in ("space", "parameters", "startup_cpu_seconds", "algorithm")
    }
    ranges: TypeAdapter[Dimension] = TypeAdapter(Dimension)
    names = list(file["configurations"])
    space = {name: ranges.validate_python(each) for name, each in attributes["space"].items() if name in names}
    columns = {name: [_plain(value) for value in file[f"configurations/{name}"]] for name in space}
    curves = {name: values[:] for name, values in file["curves"].items()}
    return Recording(
        space=space,
        configs=tuple(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)),
        parameters=attributes["parameters"],
        startup_seconds=attributes["startup_cpu_seconds"],
        eval_every=attributes["algorithm"]["eval_every"],
        task=curves["task"].astype(str),
        model=curves["model"].astype(str),
        configuration=curves["configuration"],
        seed=curves["seed"],
        diverged=curves["cause"].astype(str) == Cause.DIVERGED,
        steps=curves["steps"],
        traces={name: values[:].astype(np.float64) for name, values in file["traces"].items()},
    )


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.item()
