"""Hartmann's functions of 3 and 6 dimensions at 100 fidelities.

The function is Hartmann's with the weights of its fidelity axis (Kandasamy et al. 2017, arXiv 1703.06240, appendix D):
alpha(z) = alpha - bias (1 - z'), here with z' = log z / log 100, and so is the cost 0.05 + 0.95 (z / 100)^2. Bias 2.5
and the half-normal noise of scale 2 (1 - z') are those of mf-prior-bench's "good" functions, to which the noise-free
part was compared: equal to 5e-16 at 2 x 1000 random points and 4 fidelities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcjf.core.fidelity import rungs
from hpcjf.core.searchers.base import ModelFidelity
from hpcjf.study import RealRange
from race.known import Known, unwatched
from race.problem import Array, Curve

FIDELITIES, BIAS, NOISE = 100, 2.5, 2.0
FULL_SECONDS = 3600.0
_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A: dict[int, Any] = {
    3: [[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]],
    6: [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]],
}
_P: dict[int, Any] = {
    3: [[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]],
    6: [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ],
}
_BEST = {3: 3.86278, 6: 3.32237}
_LEVEL = 1.0 - np.log(np.arange(1, FIDELITIES + 1)) / np.log(FIDELITIES)
"""1 - z' of the fidelities: how far they are from the true function."""


def hartmann(points: Array) -> Array:
    """``[n, 100]`` noise-free values at the points ``[n, 3 or 6]`` in [0, 1], to be maximised."""
    a, p = np.array(_A[points.shape[1]]), 1e-4 * np.array(_P[points.shape[1]])
    bumps = np.exp(-np.sum(a * (points[:, None, :] - p) ** 2, axis=2))
    return np.asarray(bumps @ (_ALPHA[:, None] - BIAS * _LEVEL), dtype=np.float64)


class Hartmann(Known):
    """``mfh3`` or ``mfh6``."""

    def __init__(self, dimensions: int) -> None:
        space = {f"x{i}": RealRange(low=0.0, high=1.0) for i in range(dimensions)}
        centre = dict.fromkeys(space, 0.5)
        super().__init__(f"mfh{dimensions}", space, centre, (ModelFidelity("one", 1),), rungs(4, FIDELITIES, 3.0))

    @property
    def span(self) -> tuple[float, float]:
        """The known range: the function is nowhere negative."""
        return 0.0, _BEST[len(self.space)]

    def _run(self, point: Array, model: str, rng: np.random.Generator) -> Curve:
        noise = NOISE * _LEVEL * np.abs(rng.standard_normal(FIDELITIES))
        cost = 0.05 + 0.95 * (np.arange(1, FIDELITIES + 1) / FIDELITIES) ** 2
        return unwatched(FULL_SECONDS * cost, hartmann(point[None])[0] - noise)

    def _finals(self, points: Array) -> Array:
        return hartmann(points)[:, -1]
