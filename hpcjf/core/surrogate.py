"""Gaussian processes over (configuration, model, budget), one for the score and one for the cost.

Kernel, marginal likelihood and their gradients come from skopt; hyperparameters are maximum a posteriori, with a
normal prior on each logarithm, so that one observation gives a sane model and twenty do not over-fit. Prediction and
conditioning are plain linear algebra here, because the acquisition needs covariances between fidelities.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from hpcjf.core.space import Space
from hpcjf.types import Config, Fidelity

Array = NDArray[np.float64]

_BOUNDS = {"amplitude": (0.05, 20.0), "length": (0.1, 20.0), "noise": (1e-4, 0.5)}
_SPREADS = {"amplitude": 1.0, "length": 0.8, "noise": 1.0}
"""Standard deviations of the priors on the natural logarithms."""
_JITTER = 1e-9


@dataclass(frozen=True, slots=True)
class Inputs:
    """Turns (configuration, fidelity) into rows ``[d + 2]``: the encoded configuration, model size, budget.

    ``sizes`` are parameter counts, proxy first, target last. Size and budget are logarithms relative to the target and
    to ``full_steps``, scaled so that the smallest model and the smallest rung lie at −1; 0 is what the search is about.
    """

    space: Space
    sizes: Mapping[str, int]
    least_steps: int
    full_steps: int

    @property
    def full(self) -> Fidelity:
        """The target at its full budget."""
        return Fidelity(list(self.sizes)[-1], self.full_steps)

    def encode(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> Array:
        """``[n, d + 2]`` for pairs."""
        places = self._places()
        pairs = [(places[f.model], self._budget(f.steps)) for f in fidelities]
        return np.hstack([self.space.encode(configs), np.array(pairs, dtype=np.float64).reshape(-1, 2)])

    def size(self, model: str) -> float:
        """Natural logarithm of the parameter count relative to the target's."""
        return math.log(self.sizes[model] / self.sizes[self.full.model])

    def _places(self) -> dict[str, float]:
        """Models of one size, or of unknown sizes, are still different models: then their order places them."""
        logs = {model: self.size(model) for model in self.sizes}
        if len(set(logs.values())) < len(logs):
            logs = {model: float(place - len(logs) + 1) for place, model in enumerate(logs)}
        width = max(abs(size) for size in logs.values()) or 1.0
        return {model: size / width for model, size in logs.items()}

    def _budget(self, steps: int) -> float:
        span = math.log(self.full_steps / self.least_steps) or 1.0
        return math.log(max(steps, 1) / self.full_steps) / span


@dataclass(frozen=True, slots=True)
class Prior:
    """Medians of the hyperparameters; ``lengths`` has one entry per input column, ``[d]``."""

    lengths: Array
    noise: float = 0.02
    amplitude: float = 1.0


class GaussianProcess:
    """A GP with known kernel, conditioned on data. Outputs are standardised by ``centre`` and ``scale``."""

    def __init__(self, kernel: Any, noise: float, inputs: Array, outputs: Array, centre: float, scale: float) -> None:
        self.kernel, self.noise, self.inputs, self.outputs = kernel, noise, inputs, outputs
        self.centre, self.scale = centre, scale
        gram = np.asarray(kernel(inputs)) + (noise + _JITTER) * np.eye(len(inputs))
        self._factor = cho_factor(gram, lower=True)
        self._weights = cho_solve(self._factor, outputs)

    @classmethod
    def fit(cls, inputs: Array, values: Array, prior: Prior) -> GaussianProcess:
        """``inputs [n, d]``, ``values [n]`` with n ≥ 1."""
        centre, spread = float(np.mean(values)), float(np.std(values))
        scale = spread if spread > 1e-9 * max(1.0, abs(centre)) else 1.0
        outputs = (values - centre) / scale
        with warnings.catch_warnings():  # a hyperparameter at its bound is no news with few points
            warnings.simplefilter("ignore")
            fitted = GaussianProcessRegressor(_kernel(prior), optimizer=_posterior_mode(prior)).fit(inputs, outputs)
        signal, white = fitted.kernel_.k1, fitted.kernel_.k2
        return cls(signal, float(white.noise_level), inputs, outputs, centre, scale)

    def believe(self, inputs: Array) -> GaussianProcess:
        """Also conditioned on fantasies at ``inputs``, each at its posterior mean: means stay, variances shrink."""
        if not len(inputs):
            return self
        believed = (self.mean(inputs) - self.centre) / self.scale
        joined = np.vstack([self.inputs, inputs]), np.hstack([self.outputs, believed])
        return GaussianProcess(self.kernel, self.noise, *joined, self.centre, self.scale)

    def mean(self, inputs: Array) -> Array:
        return np.asarray(self.centre + self.scale * (self.kernel(inputs, self.inputs) @ self._weights))

    def variance(self, inputs: Array) -> Array:
        """Of the noise-free function."""
        left = self.kernel.diag(inputs) - np.sum(self._whiten(inputs) ** 2, axis=0)
        return np.asarray(self.scale**2 * np.maximum(left, 1e-12))

    def covariance(self, left: Array, right: Array) -> Array:
        """Posterior covariance of the pairs ``(left[i], right[i])``: ``[n]``."""
        explained = np.sum(self._whiten(left) * self._whiten(right), axis=0)
        return np.asarray(self.scale**2 * (_pairwise(self.kernel, left, right) - explained))

    @property
    def noise_variance(self) -> float:
        return self.noise * self.scale**2

    @property
    def lengths(self) -> Array:
        """Length scales of the input columns, ``[d]``."""
        return np.atleast_1d(np.asarray(self.kernel.k2.length_scale, dtype=np.float64))

    def _whiten(self, inputs: Array) -> Array:
        cross = np.asarray(self.kernel(self.inputs, inputs))
        return np.asarray(solve_triangular(self._factor[0], cross, lower=True))


def _pairwise(kernel: Any, left: Array, right: Array) -> Array:
    """Kernel of pairs. It is stationary: only their differences count, and those are few."""
    steps, index = np.unique(left - right, axis=0, return_inverse=True)
    origin = np.zeros((1, left.shape[1]))
    return np.asarray(np.asarray(kernel(steps, origin))[index.ravel(), 0])


def _kernel(prior: Prior) -> Any:
    lengths = Matern(prior.lengths, length_scale_bounds=_BOUNDS["length"], nu=2.5)
    amplitude = ConstantKernel(prior.amplitude, constant_value_bounds=_BOUNDS["amplitude"])
    return amplitude * lengths + WhiteKernel(prior.noise, noise_level_bounds=_BOUNDS["noise"])


def _posterior_mode(prior: Prior) -> Callable[[Callable[..., Any], Array, Array], tuple[Array, float]]:
    """An optimizer for skopt's regressor that adds the prior to the negative log likelihood it is given."""
    spread = np.array([_SPREADS["amplitude"], *[_SPREADS["length"]] * len(prior.lengths), _SPREADS["noise"]])

    def optimise(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
        def penalised(theta: Array) -> tuple[float, Array]:
            value, gradient = objective(theta, eval_gradient=True)
            away = (theta - start) / spread
            return float(value + 0.5 * away @ away), gradient + away / spread

        shorter = start - np.array([0.0, *[0.7] * len(prior.lengths), 1.0])
        starts = (start, np.clip(shorter, bounds[:, 0], bounds[:, 1]))
        options = {"maxiter": 60}
        runs = [minimize(penalised, s, jac=True, bounds=bounds, method="L-BFGS-B", options=options) for s in starts]
        best = min(runs, key=lambda run: float(run.fun))
        return best.x, float(best.fun)

    return optimise
