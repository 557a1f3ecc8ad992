"""A small problem with everything that a race is about: two models, dynamics, divergence, noise."""

from __future__ import annotations

import math

import numpy as np

from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.study import RealRange
from hpcjf.types import Config
from race.problem import Curve


class Hill:
    """Score rises to a height that falls off with the distance of log rate from 1e-5; above 5e-5 training diverges.

    A clip range above 0.35 makes the reward collapse half-way. The target takes 4 s a step, the proxy 1 s.
    """

    name = "hill"
    models = (ModelFidelity("proxy", 10), ModelFidelity("target", 100))
    rungs = (10, 30, 90)
    dynamics = True
    span = (0.0, 1.0)

    def __init__(self) -> None:
        self.space = {
            "learning_rate": RealRange(low=1e-7, high=1e-4, log=True),
            "clip_range": RealRange(low=0.05, high=0.4),
        }
        self.recipe: Config = {"learning_rate": 1e-6, "clip_range": 0.2}

    def curve(self, config: Config, model: str, seed: int) -> Curve:
        steps = np.arange(1, 91)
        noise = 0.01 * np.random.default_rng([seed, int(1e9 * float(config["learning_rate"]))]).standard_normal()
        reward = (_height(config) + noise) * (1 - 0.5 ** (steps / 20))
        if float(config["clip_range"]) > 0.35:
            reward = np.where(steps > 40, 0.0, reward)
        return Curve(
            seconds=np.cumsum(np.full(90, 1.0 if model == "proxy" else 4.0)),
            score=np.where(steps % 10 == 0, reward, np.nan),
            kl=1e-4 * steps,
            reward=reward,
            reward_std=np.full(90, 0.1),
            broken=50 if float(config["learning_rate"]) > 5e-5 else None,
        )

    def truth(self, config: Config) -> float:
        return 0.0 if float(config["learning_rate"]) > 5e-5 else _height(config)

    def startup_seconds(self, model: str) -> float:
        return 5.0 if model == "proxy" else 20.0


def _height(config: Config) -> float:
    return 1.0 - 0.3 * abs(math.log10(float(config["learning_rate"])) + 5)
