"""Writes the curves that ``tools/record_surface`` recorded; its help says what the file holds."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from surface_plan import SOBOL_SEED, Curve

from hpcjf.store.messages import AttemptResult
from hpcjf.store.traces import Rows, read_trace
from hpcjf.study import Study
from hpcjf.types import Config

_PACKAGES = ("hpcjf", "torch", "transformers", "numpy", "h5py", "scipy")
_MEASURED = ("kl", "reward_mean", "reward_std", "tokens", "eval_score")

Figures = dict[str, dict[str, Any]]


class Recorded(NamedTuple):
    """A curve that is there; ``first`` of its job or not."""

    curve: Curve
    trace: Path
    result: AttemptResult
    first: bool


def write(out: Path, study: Study, configurations: Sequence[Config], done: Sequence[Recorded]) -> None:
    """Replace ``out``. ``study`` is that of the task with all models."""
    curves = [_figures(each, study.budget.max, study.algorithm.eval_every) for each in done]
    tables = {"configurations": {name: [each[name] for each in configurations] for name in configurations[0]}}
    for group in ("curves", "traces") if curves else ():
        tables[group] = {name: [each[group][name] for each in curves] for name in curves[0][group]}
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    with h5py.File(draft, "w") as file:
        for group, table in tables.items():
            for name, values in table.items():
                array = np.array(values, "S") if isinstance(values[0], str) else np.array(values)
                file.create_dataset(f"{group}/{name}", data=array, compression="gzip", shuffle=True)
        file.attrs.update(_attributes(study, curves))
    os.replace(draft, out)


def _figures(each: Recorded, steps: int, eval_every: int) -> Figures:
    """A curve's entries in ``curves`` and ``traces``."""
    rows = read_trace(each.trace)
    traces: dict[str, Any] = {name: np.full(steps, np.nan, np.float32) for name in (*_MEASURED, "cpu_seconds")}
    traces["skipped"] = np.zeros(steps, np.uint8)
    for name in (*_MEASURED, "skipped"):
        traces[name][: len(rows)] = rows[name]
    begin = _begin(rows, eval_every)
    traces["cpu_seconds"][: len(rows)] = rows["cpu_seconds"] - begin
    curve = each.curve
    entry = {
        "configuration": curve.configuration, "task": curve.task, "model": curve.model, "seed": curve.seed,
        "cause": str(each.result.cause), "steps": len(rows),
        "startup_cpu_seconds": np.float32(begin if each.first else np.nan),
    }  # fmt: skip
    return {"curves": entry, "traces": traces}


def _begin(rows: Rows, eval_every: int) -> float:
    """CPU-s of the process when its training loop began; NaN without a step."""
    clock = rows["cpu_seconds"]
    others = np.diff(clock[: eval_every - 1])
    return float(clock[0] - (np.median(others) if len(others) else 0.0)) if len(clock) else np.nan


def _attributes(study: Study, curves: Sequence[Figures]) -> dict[str, str]:
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    startups: dict[str, list[float]] = {}
    for entry in (each["curves"] for each in curves):
        if np.isfinite(entry["startup_cpu_seconds"]):
            startups.setdefault(entry["model"], []).append(float(entry["startup_cpu_seconds"]))
    ranges = study.model_dump(mode="json", exclude_none=True)["space"]
    values = {
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "parameters": {model.name: model.parameters for model in study.models},
        "startup_cpu_seconds": {model: statistics.median(each) for model, each in startups.items()},
        "algorithm": study.algorithm.model_dump(exclude=set(ranges)) | {"horizon": study.budget.max},
        "validation_rows": study.task.validation_rows,
        "space": ranges,
        "sequence": f"Sobol, scrambled with seed {SOBOL_SEED}",
    }
    machine = f"{cpu[1] if cpu else platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    texts = {"command": f"tools/record_surface --steps {study.budget.max}", "machine": machine}
    return texts | {name: json.dumps(value) for name, value in values.items()}
