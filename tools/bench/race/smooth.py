"""Smoothing of noisy curves over the unit cube: Gaussian processes that share one kernel between a curve's points."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from race.problem import Array

_BOUNDS = ((0.1, 20.0), (1e-3, 1.0), (0.1, 10.0))
"""Of signal variance, noise variance and length scales, where the curves have unit variance and the cube unit sides."""
_PRIOR = (0.5, 1.0)
"""Mean and width of the normal prior of a log length scale: a dimension matters little unless the data say so."""


class Smoother:
    """Matérn-5/2 with a length scale per dimension; maximum a posteriori.

    ``points`` ``[n, d]``, ``curves`` ``[n, q]``, each the mean of ``repeats`` ``[n]`` recordings.
    """

    def __init__(self, points: Array, curves: Array, repeats: Array) -> None:
        self._points, self._mean = points, curves.mean(axis=0)
        self._scale = float(np.sqrt(np.mean((curves - self._mean) ** 2))) or 1.0
        rest = (curves - self._mean) / self._scale
        apart = (points[:, None, :] - points[None, :, :]) ** 2

        def loss(logs: Array) -> tuple[float, Array]:
            return _loss(logs, apart, rest, repeats)

        dimensions = points.shape[1]
        bounds = np.log([*_BOUNDS[:2], *[_BOUNDS[2]] * dimensions])
        start = np.log([1.0, 0.1, *[1.0] * dimensions])
        logs = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        self._signal, noise, *lengths = np.exp(logs)
        self._lengths = np.array(lengths)
        self._weights = np.linalg.solve(self._kernel(points) + np.diag(noise / repeats), rest) * self._scale

    def predict(self, points: Array) -> Array:
        """``[m, q]``."""
        return np.asarray(self._mean + self._kernel(points) @ self._weights)

    def nearness(self, points: Array, others: Array) -> Array:
        """``[m, n]``: prior correlation of the curves at two sets of points, which may lack the last dimensions."""
        lengths = self._lengths[: points.shape[1]]
        distance = np.sqrt(5 * np.sum(((points[:, None, :] - others) / lengths) ** 2, axis=2))
        return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))

    def _kernel(self, points: Array) -> Array:
        return np.asarray(self._signal * self.nearness(points, self._points))


def _loss(logs: Array, apart: Array, rest: Array, repeats: Array) -> tuple[float, Array]:
    """Negative log posterior a curve's point, and its gradient (Rasmussen and Williams 2006, equations 5.8 and 5.9)."""
    signal, noise, squares = np.exp(logs[0]), np.exp(logs[1]), apart / np.exp(2 * logs[2:])
    distance = np.sqrt(5 * squares.sum(axis=2))
    decay = np.exp(-distance)
    kernel, nugget = signal * (1 + distance + distance**2 / 3) * decay, np.diag(noise / repeats)
    factor = cho_factor(kernel + nugget, lower=True)
    weights, inverse = cho_solve(factor, rest), cho_solve(factor, np.eye(len(rest)))
    pull = weights @ weights.T / rest.shape[1] - inverse
    fit = 0.5 * float(np.sum(rest * weights)) / rest.shape[1] + float(np.log(np.diag(factor[0])).sum())
    slopes = signal * 5 / 3 * (1 + distance) * decay * pull
    gradient = [np.sum(pull * kernel), np.sum(pull * nugget), *np.einsum("ij,ijd->d", slopes, squares)]
    away = (logs[2:] - _PRIOR[0]) / _PRIOR[1]
    prior = np.concatenate([[0.0, 0.0], away / _PRIOR[1]])
    return fit + 0.5 * float(away @ away), -0.5 * np.array(gradient) + prior
