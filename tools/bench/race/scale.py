"""A study of 1,000 trials in 8 dimensions: what its controller and its search cost, and what taking it up again."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.core.space import Space
from hpcjf.store.frozen import freeze_study
from hpcjf.study import Categorical, Dimension, IntegerRange, RealRange
from hpcjf.types import Config
from race.ours import METHODS, Asks, controlled, run_directory, study_of
from race.pool import Pool, Site
from race.problem import Array, Curve
from race.simulation import live

_LAST = 10
"""Asks whose mean is the cost of an ask at the end."""
_RESUME = """
import importlib, json, sys, time
from pathlib import Path
from types import SimpleNamespace
from hpcjf.controller.start import opened
from hpcjf.store.frozen import load_frozen
from hpcjf.store.layout import RunLayout
for loaded in ("hpcjf.cli", "hpcjf.config", "hpcjf.resolve"):
    importlib.import_module(loaded)
layout = RunLayout(Path(sys.argv[1]))
study = load_frozen(layout)
start = time.process_time()
with opened(layout, study, SimpleNamespace(name="simulated", slots=None)) as controller:
    print(json.dumps([time.process_time() - start, len(controller.state.trials)]))
    print(open("/proc/self/status").read(), file=sys.stderr)
"""
"""A process that takes the study up as ``hpcjf run`` does, with what that imports."""


class Bowl:
    """A bump in the 8 dimensions, which the proxy has elsewhere; curves approach it exponentially."""

    name = "bowl"
    dynamics = True
    span = (0.0, 1.0)

    def __init__(self) -> None:
        self.models: tuple[ModelFidelity, ...] = (ModelFidelity("proxy", 100), ModelFidelity("target", 1000))
        self.rungs: tuple[int, ...] = (10, 30, 90)
        self.space: Mapping[str, Dimension] = {
            "learning_rate": RealRange(low=1e-7, high=1e-4, log=True),
            "kl_coef": RealRange(low=1e-4, high=1e-1, log=True),
            "clip_range": RealRange(low=0.05, high=0.4),
            "grad_clip": RealRange(low=0.1, high=2.0),
            "weight_decay": RealRange(low=0.0, high=0.1),
            "rollouts": IntegerRange(type="integer", low=2, high=16),
            "minibatches": IntegerRange(type="integer", low=1, high=8),
            "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
        }
        self.recipe: Config = {
            "learning_rate": 1e-6, "kl_coef": 1e-3, "clip_range": 0.2, "grad_clip": 1.0, "weight_decay": 0.0,
            "rollouts": 5, "minibatches": 2, "lr_scheduler": "constant",
        }  # fmt: skip
        self._space = Space(self.space)

    def curve(self, config: Config, model: str, seed: int) -> Curve:
        steps: Array = np.arange(1, 91, dtype=np.float64)
        height = self._height(config, 0.05 * (model == "proxy"))
        reward: Array = height * (1 - np.exp(-steps / 25))
        seconds: Array = np.cumsum(np.full(90, 2.0 if model == "proxy" else 12.0))
        kl: Array = 1e-4 * steps
        return Curve(seconds, np.where(steps % 10 == 0, reward, np.nan), kl, reward, np.full(90, 0.2))

    def truth(self, config: Config) -> float:
        return self._height(config, 0.0)

    def startup_seconds(self, model: str) -> float:
        return 30.0

    def _height(self, config: Config, shift: float) -> float:
        distances = self._space.encode([config])[0] - np.linspace(0.3, 0.7, 8) - shift
        return float(math.exp(-float(distances @ distances)))


def scale(trials: int = 1000) -> dict[str, float]:
    """CPU seconds of the controller, of its asks and of taking the study up again; peak memory in MB."""
    problem, site = Bowl(), Site(workers=4, latency=10.0, failures=0.02)
    pool = Pool(problem, 0, site)
    study = study_of(problem, METHODS["jfhpo"], 0, math.inf, site, search={"max_trials": trials, "max_job_hours": None})
    asks = Asks(study)
    with run_directory() as root:
        with controlled(root, study, pool, asks.state, asks) as (controller, cluster):
            freeze_study(controller.layout, study)
            ticks = sum(live(controller, cluster, math.inf))
        resumed = subprocess.run([sys.executable, "-c", _RESUME, root], capture_output=True, text=True, check=True)
    seconds, known = json.loads(resumed.stdout)
    assert known >= trials
    return {
        "scale_trials": trials,
        "scale_controller_cpu_s": ticks - asks.cpu,
        "scale_search_cpu_s": asks.cpu,
        "scale_controller_rss_mb": _peak_mb(resumed.stderr),
        "scale_all_in_one_rss_mb": _peak_mb(Path("/proc/self/status").read_text()),
        "resume_s": seconds,
        "ask_cpu_s": asks.cpu / trials,
        f"ask_cpu_s_at_{trials}": sum(asks.seconds[-_LAST:]) / _LAST,
    }


def _peak_mb(status: str) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found, "no /proc/PID/status"
    return int(found[1]) / 1024
