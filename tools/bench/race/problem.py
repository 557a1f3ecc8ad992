"""What every method is raced on: a function of (configuration, model, steps) that costs seconds.

A problem is deterministic: the same question gets the same answer, whoever asks. ``seed`` in ``curve`` is the training
seed of the run that is simulated; a search always asks for its own race seed, so that methods with one seed see the
same noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.study import Dimension
from hpcjf.types import Config

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """One training run to the full budget, arrays ``[T]`` for the steps 1 … T.

    ``seconds`` are cumulative, start-up apart. ``score`` is to be maximised and NaN where it was not evaluated.
    ``broken`` is the step at which training diverged, None for a sound run; nothing is defined from there on.
    """

    seconds: Array
    score: Array
    kl: Array
    reward: Array
    reward_std: Array
    broken: int | None = None

    def score_at(self, steps: int) -> float | None:
        """The newest evaluation at or before ``steps``; None where there is none, or training broke before."""
        if self.broken is not None and steps >= self.broken:
            return None
        seen = self.score[:steps][np.isfinite(self.score[:steps])]
        return float(seen[-1]) if len(seen) else None


class Problem(Protocol):
    """``models`` from proxy to target; ``rungs`` from the smallest to the full budget, in steps."""

    name: str
    space: Mapping[str, Dimension]
    recipe: Config
    models: tuple[ModelFidelity, ...]
    rungs: tuple[int, ...]
    dynamics: bool
    """Whether KL and reward are real, so that a stopping rule has something to watch."""

    def curve(self, config: Config, model: str, seed: int) -> Curve:
        """The run of ``config`` on ``model``; noise, if the problem has any, is drawn from ``seed``."""

    def truth(self, config: Config) -> float:
        """Noise-free score of the target at its full budget; the worst of ``span`` where it diverges."""

    def startup_seconds(self, model: str) -> float:
        """Of every job, before its first step."""

    @property
    def span(self) -> tuple[float, float]:
        """Worst and best ``truth`` of the space, by which regret is scaled (a dense sample where it is not known)."""
