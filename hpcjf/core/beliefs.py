"""What the observations say about every (configuration, model, budget): score, cost, feasibility."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.acquisition import feasibility
from hpcjf.core.surrogate import GaussianProcess, Inputs, Prior
from hpcjf.types import Config, Fidelity, Observation

Array = NDArray[np.float64]

_COST_EXPONENT = 0.7
"""Seconds per step grow about as parameters^0.7 where a model was never timed."""
_TREND_RIDGE = 0.25


@dataclass(frozen=True, slots=True)
class Joint:
    """f_T(φ) at the target's full budget and y(φ, m, r), for pairs ``[n]``."""

    mean: Array
    variance: Array
    covariance: Array
    variance_there: Array
    noise: float


class Beliefs:
    """Fitted once per set of observations; ``believing`` adds trials in flight without a new fit.

    ``values`` are scores to be maximised, of ``scored``; ``broken`` are trials that failed by their own doing.
    """

    def __init__(
        self, inputs: Inputs, scored: Sequence[Observation], values: Sequence[float], broken: Sequence[Observation]
    ) -> None:
        self._inputs = inputs
        rows, y = self._rows(scored), np.array(values, dtype=np.float64)
        self._trend = _within_slopes([o.config_id for o in scored], rows[:, -2:], y)
        self.score = GaussianProcess.fit(rows, y - rows[:, -2:] @ self._trend, _score_prior(rows.shape[1]))
        self._timed = [o for o in (*scored, *broken) if o.seconds > 0 and o.fidelity.steps > o.start_step]
        self._pace = self._fit_pace()
        self._seen = self._rows([*scored, *broken])
        self._succeeded = np.array([1.0] * len(scored) + [0.0] * len(broken))

    def believing(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> GaussianProcess:
        """The score's process with trials in flight at their posterior mean."""
        return self.score.believe(self._inputs.encode(configs, fidelities))

    def joint(self, score: GaussianProcess, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> Joint:
        """Joint posterior of the target at full budget and of an observation, per pair (φ, (m, r))."""
        there = self._inputs.encode(configs, fidelities)
        target = self.at_target(there)
        covariance = score.covariance(target, there)
        return Joint(
            score.mean(target), score.variance(target), covariance, score.variance(there), score.noise_variance
        )

    def target_mean(self, score: GaussianProcess, configs: Sequence[Config]) -> Array:
        """Posterior mean of the target's score at full budget, ``[n]``."""
        return score.mean(self._inputs.encode(configs, [self._inputs.full] * len(configs)))

    def seconds_per_step(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> Array:
        """Expected training seconds of a global step, ``[n]``."""
        sizes = _COST_EXPONENT * np.array([self._inputs.size(f.model) for f in fidelities])
        pace = self._pace.mean(self._inputs.encode(configs, fidelities)) if self._pace else np.zeros(len(configs))
        return np.asarray(np.exp(pace + sizes))

    def startup_seconds(self, model: str) -> float:
        """Median start-up of the model's jobs, else of all jobs, else 0."""
        own = [o.startup_seconds for o in self._timed if o.fidelity.model == model]
        return median(own or [o.startup_seconds for o in self._timed] or [0.0])

    def feasible(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> Array:
        return feasibility(self._inputs.encode(configs, fidelities), self._seen, self._succeeded)

    @staticmethod
    def at_target(rows: Array) -> Array:
        """The same configurations at the target's full budget, where both fidelity columns are 0."""
        return np.hstack([rows[:, :-2], np.zeros((len(rows), 2))])

    def _rows(self, observations: Sequence[Observation]) -> Array:
        return self._inputs.encode([o.config for o in observations], [o.fidelity for o in observations])

    def _fit_pace(self) -> GaussianProcess | None:
        if not self._timed:
            return None
        paces = [np.log(o.seconds / (o.fidelity.steps - o.start_step)) for o in self._timed]
        sizes = [_COST_EXPONENT * self._inputs.size(o.fidelity.model) for o in self._timed]
        rows = self._rows(self._timed)
        lengths = np.array([1.0] * (rows.shape[1] - 1) + [5.0])
        return GaussianProcess.fit(rows, np.array(paces) - np.array(sizes), Prior(lengths, noise=0.05))


def _score_prior(columns: int) -> Prior:
    """Length scales in units of the range: configurations rougher in more dimensions, fidelities smooth."""
    return Prior(np.array([0.3 * np.sqrt(columns - 2)] * (columns - 2) + [1.0, 1.0]))


def _within_slopes(identities: Sequence[str], fidelities: Array, values: Array) -> Array:
    """How scores rise with (model, budget), ``[2]``, from configurations seen at several fidelities.

    Within a configuration only: promoted ones are better than others, and across configurations that would pass for
    an effect of the budget. Ridge regression, so that no pair means no slope.
    """
    x, y = fidelities.copy(), values.copy()
    order = sorted(range(len(identities)), key=lambda i: identities[i])
    for _, group in itertools.groupby(order, key=lambda i: identities[i]):
        members = list(group)
        x[members] -= x[members].mean(axis=0)
        y[members] -= y[members].mean()
    return np.asarray(np.linalg.solve(x.T @ x + _TREND_RIDGE * np.eye(2), x.T @ y))
