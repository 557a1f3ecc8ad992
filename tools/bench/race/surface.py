"""One recorded task and model over the whole space.

Score, log KL, reward, its spread and log seconds of a step are each smoothed over the space (``race.smooth``). A run is
that mean and a draw of noise: a Gaussian mixture of the differences between the recorded runs of one configuration with
two seeds, those of near configurations before all, so that step-to-step noise, noise of the evaluation and slow effects
of the seed are those that were seen there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from hpcjf.errors import UserError
from race.cube import Cube
from race.problem import Array, Curve
from race.recording import Recording
from race.smooth import Smoother

KINDS = ("score", "kl", "reward", "spread", "seconds")
_FLOOR = 1e-4
"""Added to a KL before its logarithm, nats per token."""
_WINDOW = 5
"""Steps over which recorded KL and reward are averaged before they are smoothed over the space."""


class Surface:
    """One task and model: mean curves over the unit cube, and noise.

    A model with at most half as many configurations as a smaller one takes that one's level, the mean over the last
    third of its smoothed curve, as a further input, and its noise where it has no pairs of seeds of its own.
    """

    def __init__(
        self,
        recording: Recording,
        task: str,
        model: str,
        left_out: Collection[int] = (),
        kinds: Sequence[str] = KINDS,
    ) -> None:
        """``left_out`` are configurations that are not to be seen."""
        rows = recording.rows(task, model)
        rows = rows[~np.isin(recording.configuration[rows], list(left_out))]
        if not len(rows):
            raise UserError(f"no curves of {task} on {model}", where="the recording", fix="name what is recorded")
        smaller = _better_known(recording, task, model)
        self._below = Surface(recording, task, smaller, left_out, kinds) if smaller else None
        self._every, self._horizon = recording.eval_every, recording.horizon
        places = Cube(recording.space).points(recording.configs)
        self._sites, self._breaks = _breaks(recording, rows)
        sound = rows[~recording.diverged[rows]]
        curves = {kind: _series(recording, sound, kind) for kind in kinds}
        configurations = recording.configuration[sound]
        known = np.unique(configurations)
        points = places[known]
        members = configurations == known[:, None]
        repeats = members.sum(axis=1).astype(np.float64)
        self._levels: dict[str, tuple[float, float]] = {}
        self._smoothers: dict[str, Smoother] = {}
        for kind, values in curves.items():
            means = members @ _in_time(kind, values) / repeats[:, None]
            self._smoothers[kind] = Smoother(self._inputs(kind, points), means, repeats)
        first, second = _pairs(configurations, recording.seed[sound])
        self._pair_points = places[configurations[first]]
        self._apart = {kind: (values[first] - values[second]) / np.sqrt(2) for kind, values in curves.items()}
        reward = recording.traces["reward_mean"][sound]
        self._range = float(np.nanmin(reward)), float(np.nanmax(reward))

    def mean(self, kind: str, points: Array) -> Array:
        """``[n, q]``: score by evaluation, log KL, reward and spread by step, log seconds of a step by evaluation."""
        return self._smoothers[kind].predict(self._inputs(kind, points))

    def run(self, point: Array, rng: np.random.Generator) -> Curve:
        noise = self._noise(point, rng)
        score, kl, reward, spread, seconds = (self.mean(kind, point[None])[0] + noise[kind] for kind in KINDS)
        scores = np.full(self._horizon, np.nan)
        scores[self._every - 1 :: self._every] = score.clip(0.0, 1.0)
        return Curve(
            seconds=np.cumsum(np.repeat(np.exp(seconds), self._every)),
            score=scores,
            kl=np.maximum(np.exp(kl) - _FLOOR, 0.0),
            reward=reward.clip(*self._range),
            reward_std=np.maximum(spread, 0.0),
            broken=self.broken(point[None])[0] or None,
        )

    def broken(self, points: Array) -> NDArray[np.int64]:
        """``[n]``: the step at which the nearest recorded configuration diverged, 0 where it did not."""
        if not self._breaks.any():
            return np.zeros(len(points), dtype=np.int64)
        nearest = np.argmax(self._smoothers["score"].nearness(points, self._sites), axis=1)
        return np.asarray(self._breaks[nearest])

    def _noise(self, point: Array, rng: np.random.Generator) -> dict[str, Array]:
        """By kind, as the recorded spread between seeds at the pairs, weighted by their nearness."""
        if not len(self._pair_points) and self._below:
            return self._below._noise(point, rng)
        near = self._smoothers["score"].nearness(point[None], self._pair_points)[0]
        shares = np.sqrt(near / max(near.sum(), 1e-300)) * rng.standard_normal(len(near))
        return {kind: shares @ apart for kind, apart in self._apart.items()}

    def _inputs(self, kind: str, points: Array) -> Array:
        if self._below is None:
            return points
        curves = self._below.mean(kind, points)
        level = curves[:, -max(1, curves.shape[1] // 3) :].mean(axis=1)
        low, high = self._levels.setdefault(kind, (float(level.min()), float(level.max())))
        return np.column_stack([points, (level - low) / (high - low or 1.0)])


def _better_known(recording: Recording, task: str, model: str) -> str | None:
    """The next smaller model with at least twice as many configurations."""
    names = list(recording.parameters)
    counts = {name: len(set(recording.configuration[recording.rows(task, name)])) for name in names}
    smaller = [name for name in names[: names.index(model)] if counts[name] >= 2 * counts[model]]
    return smaller[-1] if smaller else None


def _series(recording: Recording, rows: NDArray[np.intp], kind: str) -> Array:
    traces, every = recording.traces, recording.eval_every
    match kind:
        case "score":
            return traces["eval_score"][rows, every - 1 :: every]
        case "kl":
            return np.asarray(np.log(np.maximum(traces["kl"][rows], 0.0) + _FLOOR), dtype=np.float64)
        case "seconds":
            ends = traces["cpu_seconds"][rows, every - 1 :: every]
            return np.asarray(np.log(np.diff(ends, axis=1, prepend=0.0) / every), dtype=np.float64)
        case _:
            return traces["reward_mean" if kind == "reward" else "reward_std"][rows]


def _in_time(kind: str, values: Array) -> Array:
    """The recorded curves as they enter the mean: what is known at each step is averaged over some."""
    averaged = kind in ("kl", "reward", "spread")
    return np.asarray(uniform_filter1d(values, _WINDOW, axis=1, mode="nearest")) if averaged else values


def _pairs(configurations: NDArray[np.int64], seeds: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """The rows of the first two seeds of every configuration that has two."""
    order = [np.flatnonzero(configurations == each) for each in np.unique(configurations)]
    rows = [own[np.argsort(seeds[own])][:2].tolist() for own in order if len(own) > 1]
    return [row[0] for row in rows], [row[1] for row in rows]


def _breaks(recording: Recording, rows: NDArray[np.intp]) -> tuple[Array, NDArray[np.int64]]:
    """Points of the rows' configurations, and the first step at which a run of each diverged, 0 where none did."""
    configurations = np.unique(recording.configuration[rows])
    steps = np.where(recording.diverged[rows], np.maximum(recording.steps[rows], 1), 0)
    breaks = [steps[(recording.configuration[rows] == each) & (steps > 0)] for each in configurations]
    first = np.array([own.min() if len(own) else 0 for own in breaks], dtype=np.int64)
    return Cube(recording.space).points([recording.configs[each] for each in configurations]), first
