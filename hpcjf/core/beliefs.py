"""What the observations say about every (configuration, model, budget): score, cost, KL, feasibility."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from hpcjf.core.acquisition import feasibility
from hpcjf.core.surrogate import GaussianProcess, Inputs, Prior, fitted_kernel, scale_of
from hpcjf.types import Config, Fidelity, Observation

Array = NDArray[np.float64]
Scored = Sequence[tuple[Observation, float]]
"""Observations with their value, which is to be maximised."""

FITTED, ACTIVE = 128, 500
"""Most observations that hyperparameters are fitted on, and that a process is conditioned on."""
_EARLY = (1, 2, 3, 4, 6, 8, 11)
_FROM, _PER_DOUBLING = 16, 5
"""Hyperparameters are fitted at these numbers of observations, then from 16 on with every 15 % more."""
_COST_EXPONENT = 0.7
"""Seconds per step grow about as parameters^0.7 where a model was never timed."""
_TREND_RIDGE = 0.25
_LEAST_KL = 1e-6


def refits(count: int) -> list[int]:
    """Numbers of observations up to ``count`` at which a fit is due, from the last one that starts afresh.

    >>> refits(5), refits(40)
    ([4], [32, 37])
    """
    if count < _FROM:
        return [max(point for point in _EARLY if point <= count)]
    gaps = int(_PER_DOUBLING * math.log2(count / _FROM) + 1e-9)
    due = [round(_FROM * 2 ** (k / _PER_DOUBLING)) for k in range(gaps // _PER_DOUBLING * _PER_DOUBLING, gaps + 2)]
    return [point for point in due if point <= count]


def active_set(scored: Scored, limit: int) -> Scored:
    """At most ``limit`` observations in their order: the best half of that, and an even sample of the others."""
    if len(scored) <= limit:
        return scored
    ranked = sorted(range(len(scored)), key=lambda i: -scored[i][1])
    best = ranked[: limit // 2]
    others = sorted(ranked[limit // 2 :])
    picked = np.linspace(0, len(others) - 1, limit - len(best)).astype(int)
    return [scored[i] for i in sorted([*best, *(others[k] for k in picked)])]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Fitted hyperparameters of the processes, from the first ``count`` scored observations."""

    count: int
    score: Any
    pace: Any | None
    kl: Any | None

    @classmethod
    def fit(cls, inputs: Inputs, scored: Scored, before: Kernels | None, *, with_kl: bool) -> Kernels:
        part = active_set(scored, FITTED)
        rows, values = _rows(inputs, part), squashed(np.array([value for _, value in part]))
        left, _ = _detrended(part, rows, values)
        timed, paces = _paces(inputs, part)
        measured, kls = _log_kl(inputs, part if with_kl else ())
        return cls(
            len(scored),
            _fitted(rows, left, _score_prior(rows.shape[1] - 2), before.score if before else None),
            _fitted(timed, paces, _pace_prior(rows.shape[1] - 2), before.pace if before else None),
            _fitted(measured, kls, _score_prior(rows.shape[1] - 2), before.kl if before else None),
        )


class Beliefs:
    """Processes conditioned on the observations; ``believing`` adds trials in flight.

    ``broken`` are trials that failed by their own doing.
    """

    def __init__(self, inputs: Inputs, kernels: Kernels, scored: Scored, broken: Sequence[Observation]) -> None:
        self._inputs = inputs
        part = active_set(scored, ACTIVE)
        rows, values = _rows(inputs, part), squashed(np.array([value for _, value in part]))
        left, self._trend = _detrended(part, rows, values)
        self.score = _bounded(GaussianProcess(kernels.score, rows, left, scale_of(left)), part, rows, self._trend[1])
        timed, paces = _paces(inputs, part)
        self._pace = GaussianProcess(kernels.pace, timed, paces, scale_of(paces)) if kernels.pace else None
        measured, kls = _log_kl(inputs, part)
        self._kl = GaussianProcess(kernels.kl, measured, kls, scale_of(kls)) if kernels.kl else None
        self._timed = [o for o, _ in part if o.seconds > 0]
        ended = [*(o for o, _ in part), *broken[-ACTIVE:]]
        self._seen = inputs.encode([o.config for o in ended], [o.fidelity for o in ended])
        self._succeeded = np.array([1.0] * len(part) + [0.0] * len(broken[-ACTIVE:]))

    def believing(self, configs: Sequence[Config], fidelities: Sequence[Fidelity]) -> GaussianProcess:
        """The score's process with trials in flight at their posterior mean."""
        return self.score.believe(self._inputs.encode(configs, fidelities))

    def trend(self, fidelities: Sequence[Fidelity]) -> Array:
        """Average gain of the score over the target's at full budget, ``[n]``, which the processes leave out."""
        return np.asarray(self._inputs.places(fidelities) @ self._trend)

    def seconds_per_step(self, rows: Array, fidelities: Sequence[Fidelity]) -> Array:
        """Expected training seconds of a global step at ``rows [n, d + 2]``."""
        sizes = _COST_EXPONENT * np.array([self._inputs.size(f.model) for f in fidelities])
        return np.asarray(np.exp((self._pace.mean(rows) if self._pace else 0.0) + sizes))

    def startup_seconds(self, model: str) -> float:
        """Median start-up of the model's jobs, else of all jobs, else 0."""
        own = [o.startup_seconds for o in self._timed if o.fidelity.model == model]
        return median(own or [o.startup_seconds for o in self._timed] or [0.0])

    def feasible(self, rows: Array) -> Array:
        """Probability that a trial at ``rows [n, d + 2]`` gives a score."""
        return feasibility(rows, self._seen, self._succeeded)

    def within(self, rows: Array, ceiling: float) -> Array:
        """Probability that the KL at ``rows [n, d + 2]`` is at most ``ceiling``."""
        if self._kl is None:
            return np.ones(len(rows))
        there = self._kl.look(rows)
        std = np.sqrt(there.variance + self._kl.noise_variance(rows))
        return np.asarray(ndtr((np.log(ceiling) - there.mean) / std))


def squashed(values: Array) -> Array:
    """``values`` with those far below the better half drawn in, in their order: a cliff is no reason to see noise.

    Distances below the median beyond twice the spread of the better half grow as their logarithm from there on.
    """
    middle = float(np.median(values))
    spread = float(np.mean(values[values >= middle] - middle)) * 2
    below = (middle - values) / spread if spread > 0 else np.zeros(len(values))
    drawn = np.where(below > 2, 2 + np.log1p(np.maximum(below - 2, 0)), below)
    return np.where(below > 2, middle - drawn * spread, values)


def _bounded(score: GaussianProcess, part: Scored, rows: Array, rise: float) -> GaussianProcess:
    """Stopped trials as an upper bound at their model's full budget: the mean of the normal truncated at the score.

    Imputed anew at every conditioning, as the score of the stopping step is the only thing that was measured
    (jf-hpo, "What we add" 5). ``rise`` is the trend along the budget, which the process leaves out.
    """
    stopped = np.array([o.cause.stopped for o, _ in part], dtype=bool)
    if not stopped.any():
        return score
    full = rows[stopped].copy()
    full[:, -1] = 0.0
    bound, there = score.mean(rows[stopped]) + rise * rows[stopped, -1], score.look(full)
    std = np.sqrt(there.variance)
    z = (bound - there.mean) / std
    hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    return score.believe(full, there.mean - std * hazard)


def _rows(inputs: Inputs, scored: Scored) -> Array:
    return inputs.encode([o.config for o, _ in scored], [o.fidelity for o, _ in scored])


def _detrended(scored: Scored, rows: Array, values: Array) -> tuple[Array, Array]:
    trend = _within_slopes([o.config_id for o, _ in scored], rows[:, -2:], values)
    return values - rows[:, -2:] @ trend, trend


def _paces(inputs: Inputs, scored: Scored) -> tuple[Array, Array]:
    """Rows and log seconds per step, what the size alone explains taken off, of trials that were timed."""
    timed = [(o, v) for o, v in scored if o.seconds > 0 and o.fidelity.steps > o.start_step]
    paces = [np.log(o.seconds / (o.fidelity.steps - o.start_step)) for o, _ in timed]
    sizes = [_COST_EXPONENT * inputs.size(o.fidelity.model) for o, _ in timed]
    return _rows(inputs, timed), np.array(paces) - np.array(sizes)


def _log_kl(inputs: Inputs, scored: Scored) -> tuple[Array, Array]:
    measured = [(o, v) for o, v in scored if o.kl is not None]
    return _rows(inputs, measured), np.log([max(o.kl or 0.0, _LEAST_KL) for o, _ in measured])


def _fitted(rows: Array, values: Array, prior: Prior, start: Any | None) -> Any | None:
    if not len(rows):
        return None
    centre, scale = scale_of(values)
    return fitted_kernel(rows, (values - centre) / scale, prior, start)


def _score_prior(dimensions: int) -> Prior:
    """Length scales in units of the range: rougher in more dimensions."""
    return Prior(np.full(dimensions, 0.3 * np.sqrt(dimensions)))


def _pace_prior(dimensions: int) -> Prior:
    return Prior(np.ones(dimensions), noise=0.05, budget=0.05, growth=0.02)


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
