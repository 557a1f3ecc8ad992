"""Gaussian processes over (configuration, model, budget), one for the score and one for the cost.

The kernel says how a run differs from the target's full run: f(φ, m, r) = e^{κ b(r)} (f_T(φ) + s(m) δ(φ)) + b(r) γ(φ),
with s and b 0 at the target and its full budget and −1 at the smallest: all runs start from the same weights, so that
differences grow with the budget. f_T, δ and γ are independent and share the length scales of φ, hence
k = a Matern(φ, φ') (e^{κ (b + b')} (1 + a_s s s') + a_b b b'). How far a proxy and a short run are to be trusted is
learned through a_s, a_b and κ. (Linear in the fidelity as in FABOLAS, arXiv 1605.07079.)

Kernel, marginal likelihood and gradients come from skopt; hyperparameters are maximum a posteriori, with a normal prior
on each logarithm, so that one observation gives a sane model and twenty do not over-fit. Prediction and conditioning
are plain linear algebra here, because the acquisition needs covariances between fidelities.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import Hyperparameter
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from hpcjf.core.space import Space
from hpcjf.types import Config, Fidelity

Array = NDArray[np.float64]

_BOUNDS = {
    "amplitude": (0.05, 20.0),
    "length": (0.1, 20.0),
    "share": (1e-3, 20.0),
    "growth": (0.01, 4.0),
    "noise": (1e-4, 0.5),
    "early": (1e-4, 20.0),
}
_SPREADS = {"amplitude": 1.0, "length": 0.8, "share": 1.0, "growth": 0.8, "noise": 1.0, "early": 1.5}
"""Standard deviations of the priors on the natural logarithms."""
_JITTER = 1e-9


@dataclass(frozen=True, slots=True)
class Inputs:
    """Turns (configuration, fidelity) into rows ``[d + 2]``: the encoded configuration, model size, budget.

    ``sizes`` are parameter counts; ``target`` names the model that the search is about. Size and budget are logarithms
    relative to the target and to ``full_steps``, scaled so that the smallest model and the smallest rung lie at −1.
    """

    space: Space
    sizes: Mapping[str, int]
    target: str
    least_steps: int
    full_steps: int

    @property
    def full(self) -> Fidelity:
        """The target at its full budget."""
        return Fidelity(self.target, self.full_steps)

    def encode(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> Array:
        """``[n, d + 2]`` for pairs."""
        return np.hstack([self.space.encode(configs), self.places(fidelities)])

    def at_full(self, encoded: Array) -> Array:
        """Rows of configurations ``[n, d]``, encoded already, on the target at its full budget."""
        return np.hstack([encoded, np.zeros((len(encoded), 2))])

    def places(self, fidelities: Sequence[Fidelity]) -> Array:
        """``[n, 2]``: where the fidelities lie on the axes of model size and budget."""
        models = self._models()
        pairs = [(models[f.model], self._budget(f.steps)) for f in fidelities]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def size(self, model: str) -> float:
        """Natural logarithm of the parameter count relative to the target's."""
        return math.log(self.sizes[model] / self.sizes[self.target])

    def _models(self) -> dict[str, float]:
        """Models of one size, or of unknown sizes, are still different models: then their order places them."""
        logs = {model: self.size(model) for model in self.sizes}
        if len(set(logs.values())) < len(logs):
            last = list(logs).index(self.target)
            logs = {model: float(place - last) for place, model in enumerate(logs)}
        width = max(abs(size) for size in logs.values()) or 1.0
        return {model: size / width for model, size in logs.items()}

    def _budget(self, steps: int) -> float:
        span = math.log(self.full_steps / self.least_steps) or 1.0
        return math.log(max(steps, 1) / self.full_steps) / span


class JointKernel(Matern):  # type: ignore[misc]
    """Matern 5/2 over all columns but the last two, s and b, times e^{``growth`` (b + b')} (1 + ``model`` s s') +
    ``budget`` b b'.
    """

    def __init__(
        self,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = _BOUNDS["length"],
        nu: float = 2.5,
        model: float = 1.0,
        model_bounds: Any = _BOUNDS["share"],
        budget: float = 1.0,
        budget_bounds: Any = _BOUNDS["share"],
        growth: float = 1.0,
        growth_bounds: Any = _BOUNDS["growth"],
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, nu)
        self.model, self.model_bounds, self.budget, self.budget_bounds = model, model_bounds, budget, budget_bounds
        self.growth, self.growth_bounds = growth, growth_bounds

    @property
    def hyperparameter_budget(self) -> Any:
        return Hyperparameter("budget", "numeric", self.budget_bounds)

    @property
    def hyperparameter_growth(self) -> Any:
        return Hyperparameter("growth", "numeric", self.growth_bounds)

    @property
    def hyperparameter_model(self) -> Any:
        return Hyperparameter("model", "numeric", self.model_bounds)

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:
        other = X if Y is None else Y
        if not eval_gradient:
            return super().__call__(X[:, :-2], None if Y is None else Y[:, :-2]) * self.between(
                X[:, None, -2:], other[None, :, -2:]
            )
        base, by_length = super().__call__(X[:, :-2], eval_gradient=True)
        sizes, budgets = np.outer(X[:, -2], X[:, -2]), np.outer(X[:, -1], X[:, -1])
        sums = X[:, None, -1] + X[None, :, -1]
        grown = np.exp(self.growth * sums)
        shared, alone = grown * (1.0 + self.model * sizes), self.budget * budgets
        factor = shared + alone
        by_growth, by_model = self.growth * sums * shared, grown * self.model * sizes
        parts = [base * alone, base * by_growth, by_length * factor[:, :, None], base * by_model]
        return base * factor, np.dstack(parts)  # in the order of their names

    def diag(self, X: Array) -> Array:
        return self.between(X[:, -2:], X[:, -2:])

    def between(self, left: Array, right: Array) -> Array:
        """The factor of the fidelities ``[..., 2]``: the kernel where the configurations are the same."""
        grown = np.exp(self.growth * (left[..., 1] + right[..., 1]))
        shared = grown * (1.0 + self.model * left[..., 0] * right[..., 0])
        return np.asarray(shared + self.budget * left[..., 1] * right[..., 1])


class EarlyNoise(WhiteKernel):  # type: ignore[misc]
    """Noise that shorter runs have on top: ``noise_level`` b², so that a noisy start does not cloud full runs."""

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:
        if Y is not None:
            return np.zeros((len(X), len(Y)))
        gram = np.diag(self.diag(X))
        return (gram, gram[:, :, None]) if eval_gradient else gram

    def diag(self, X: Array) -> Array:
        return np.asarray(self.noise_level * X[:, -1] ** 2)


@dataclass(frozen=True, slots=True)
class Prior:
    """Medians of the hyperparameters; ``lengths`` has one entry per column of the configuration, ``[d]``."""

    lengths: Array
    noise: float = 0.02
    amplitude: float = 1.0
    model: float = 0.5
    budget: float = 1.0
    growth: float = 0.5

    def kernel(self) -> Any:
        """Signal plus white noise, at the medians."""
        joint = JointKernel(self.lengths, model=self.model, budget=self.budget, growth=self.growth)
        amplitude = ConstantKernel(self.amplitude, constant_value_bounds=_BOUNDS["amplitude"])
        white = WhiteKernel(self.noise, noise_level_bounds=_BOUNDS["noise"])
        return amplitude * joint + white + EarlyNoise(self.noise, noise_level_bounds=_BOUNDS["early"])

    def spreads(self) -> Array:
        """In the order of the kernel's theta."""
        share, lengths = _SPREADS["share"], [_SPREADS["length"]] * len(self.lengths)
        return np.array(
            [_SPREADS["amplitude"], share, _SPREADS["growth"], *lengths, share, _SPREADS["noise"], _SPREADS["early"]]
        )


def scale_of(values: Array) -> tuple[float, float]:
    """Mean and standard deviation by which outputs are standardised; constant values are left at their size."""
    centre, spread = float(np.mean(values)), float(np.std(values))
    return centre, spread if spread > 1e-9 * max(1.0, abs(centre)) else 1.0


def fitted_kernel(inputs: Array, outputs: Array, prior: Prior, start: Any | None = None) -> Any:
    """Signal plus noise at the posterior mode, for standardised ``outputs [n]`` at ``inputs [n, d + 2]``, n ≥ 1.

    ``start`` is an earlier answer to go on from. Without one the search starts at the prior's medians, and again at
    shorter length scales.
    """
    kernel = prior.kernel()
    starts = [start.theta] if start is not None else [kernel.theta, _shorter(kernel.theta, len(prior.lengths))]
    optimizer = _posterior_mode(kernel.theta, prior.spreads(), starts)
    with warnings.catch_warnings():  # a hyperparameter at its bound is no news with few points
        warnings.simplefilter("ignore")
        return GaussianProcessRegressor(kernel, optimizer=optimizer).fit(inputs, outputs).kernel_


class GaussianProcess:
    """A process with a known kernel, conditioned on data; ``values [n]`` are standardised by ``centre, scale``."""

    def __init__(self, kernel: Any, inputs: Array, values: Array, standard: tuple[float, float]) -> None:
        self._both, self.inputs, self.standard = kernel, inputs, standard
        self.kernel, self._noises = kernel.k1.k1, (kernel.k1.k2, kernel.k2)
        self._values = values
        gram = np.asarray(self.kernel(inputs)) + np.diag(self._noise(inputs) + _JITTER)
        self._factor = cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
        centre, scale = standard
        self._weights = cho_solve((self._factor, True), (values - centre) / scale, check_finite=False)

    def believe(self, inputs: Array, values: Array | None = None) -> GaussianProcess:
        """Also conditioned on ``values`` at ``inputs``; without them on the posterior mean, which shrinks variances."""
        if not len(inputs):
            return self
        added = self.mean(inputs) if values is None else values
        joined = np.vstack([self.inputs, inputs]), np.hstack([self._values, added])
        return GaussianProcess(self._both, *joined, self.standard)

    def mean(self, inputs: Array) -> Array:
        centre, scale = self.standard
        return np.asarray(centre + scale * (self.kernel(inputs, self.inputs) @ self._weights))

    def variance(self, inputs: Array) -> Array:
        """Of the noise-free function."""
        return self.look(inputs).variance

    def look(self, inputs: Array) -> Outlook:
        """Mean and variance at ``inputs [n, d + 2]``, with what covariances between two looks need."""
        centre, scale = self.standard
        cross = np.asarray(self.kernel(self.inputs, inputs))
        white = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        left = self.kernel.diag(inputs) - np.einsum("ij,ij->j", white, white)
        mean = centre + scale * (self._weights @ cross)
        return Outlook(inputs, mean, scale**2 * np.maximum(left, 1e-12), white)

    def covariance(self, left: Outlook, right: Outlook, index: NDArray[np.intp]) -> Array:
        """Posterior covariance of the pairs ``(left[index[i]], right[i])`` of the same configuration, ``[n]``."""
        joint = self.kernel.k2
        prior = self.kernel.k1.constant_value * joint.between(left.inputs[index, -2:], right.inputs[:, -2:])
        explained = np.einsum("ij,ij->j", left.white[:, index], right.white)
        return np.asarray(self.standard[1] ** 2 * (prior - explained))

    def noise_variance(self, inputs: Array) -> Array:
        """Of an observation at ``inputs [n, d + 2]``."""
        return np.asarray(self.standard[1] ** 2 * self._noise(inputs))

    def _noise(self, inputs: Array) -> Array:
        return np.asarray(sum(kernel.diag(inputs) for kernel in self._noises))

    @property
    def trust(self) -> tuple[float, float]:
        """Prior correlation with the target's full run, of the smallest model's and of the target's shortest one."""
        at_full, kernel = np.zeros(2), self.kernel.k2
        places = (np.array([-1.0, 0.0]), np.array([0.0, -1.0]))
        model, budget = (kernel.between(at_full, place) / kernel.between(place, place) ** 0.5 for place in places)
        return float(model), float(budget)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A process seen at ``inputs``: ``mean [n]``, ``variance [n]`` without noise, ``white [points, n]``."""

    inputs: Array
    mean: Array
    variance: Array
    white: Array


def _shorter(theta: Array, dimensions: int) -> Array:
    """Length scales at half, noise at a third."""
    return np.asarray(theta - np.array([0.0, 0.0, 0.0, *[0.7] * dimensions, 0.0, 1.0, 1.0]))


def _posterior_mode(
    medians: Array, spreads: Array, starts: Sequence[Array]
) -> Callable[[Callable[..., Any], Array, Array], tuple[Array, float]]:
    """An optimizer for skopt's regressor that adds the prior to the negative log likelihood it is given."""

    def optimise(objective: Callable[..., Any], _: Array, bounds: Array) -> tuple[Array, float]:
        def penalised(theta: Array) -> tuple[float, Array]:
            value, gradient = objective(theta, eval_gradient=True)
            away = (theta - medians) / spreads
            return float(value + 0.5 * away @ away), gradient + away / spreads

        options = {"maxiter": 30}
        inside = [np.clip(start, bounds[:, 0], bounds[:, 1]) for start in starts]
        runs = [minimize(penalised, s, jac=True, bounds=bounds, method="L-BFGS-B", options=options) for s in inside]
        best = min(runs, key=lambda run: float(run.fun))
        return best.x, float(best.fun)

    return optimise
