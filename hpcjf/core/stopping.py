"""Early stopping from training dynamics: when a growing trace says that its trial is lost.

``paper`` is the rule of JF-HPO (arXiv 2606.03073) to the letter: relative growth of the KL, relative drop of the
reward, or a reward of exactly 0, on k consecutive global steps. ``robust`` watches the same two dynamics on smoothed
series and on scales that stay meaningful near zero and below it. Both stop a non-finite trace at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.study import StoppingSection
from hpcjf.types import Cause

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = Mapping[str, NDArray[np.generic]] | NDArray[np.void]
"""Columns ``step``, ``kl``, ``reward_mean``, each ``[T]``, one row per global step in order. Optional: ``reward_std``
over the completions of a step, ``entropy``, and ``skipped``, which marks steps without an update. Where KL and reward
are both NaN, or the KL of a skipped step is, nothing was measured (supervised steps, no finite reward): no divergence.
(Steps whose rewards are all equal are skipped as well, and do count.)"""

NOISE_FACTOR = 3.0
"""robust: a drop counts once it exceeds this many standard deviations of the reward's step-to-step noise."""


@dataclass(frozen=True, slots=True)
class StopDecision:
    """Stop: ``step`` is the global step at which the rule fired, ``why`` a line for people."""

    cause: Cause
    step: int
    why: str


def decide(rows: Rows, settings: StoppingSection) -> StopDecision | None:
    """The first step at which the rule fires, or None. The same trace, longer, gives the same decision."""
    trace = _Trace.of(rows)
    if settings.rule == "none":
        return None
    finite = np.isfinite(trace.kl) & np.isfinite(trace.reward)
    if finite.all():
        return _dynamics(trace, settings)
    sound = int(np.argmin(finite))
    broken = StopDecision(Cause.DIVERGED, int(trace.step[sound]), "KL or reward is not finite")
    return _dynamics(trace.only(slice(sound)), settings) or broken


@dataclass(frozen=True, slots=True)
class _Trace:
    step: NDArray[np.int64]
    kl: Floats
    reward: Floats
    reward_std: Floats
    entropy: Floats

    @classmethod
    def of(cls, rows: Rows) -> _Trace:
        names = rows.dtype.names or () if isinstance(rows, np.ndarray) else rows
        step = np.asarray(rows["step"], dtype=np.int64)
        kl, reward = (np.asarray(rows[name], dtype=np.float64) for name in ("kl", "reward_mean"))
        skipped = np.asarray(rows["skipped"] if "skipped" in names else np.zeros(len(step)), dtype=bool)
        std = np.asarray(rows["reward_std"] if "reward_std" in names else np.zeros(len(step)), dtype=np.float64)
        entropy = np.asarray(rows["entropy"] if "entropy" in names else np.full(len(step), np.inf), dtype=np.float64)
        kept = ~(np.isnan(kl) & (skipped | np.isnan(reward)))
        return cls(step, kl, reward, np.nan_to_num(std, nan=0.0, posinf=0.0), entropy).only(kept)

    def only(self, rows: Bools | slice) -> _Trace:
        return _Trace(self.step[rows], self.kl[rows], self.reward[rows], self.reward_std[rows], self.entropy[rows])


def _dynamics(trace: _Trace, settings: StoppingSection) -> StopDecision | None:
    rules = _paper(trace, settings) if settings.rule == "paper" else _robust(trace, settings)
    allowed = trace.step >= (settings.warmup_steps if settings.rule == "robust" else 0)
    fired = []
    for cause, offending, why in rules:
        hits = np.flatnonzero((_streak(offending) >= settings.patience) & allowed)
        if hits.size:
            step = int(trace.step[hits[0]])
            fired.append(StopDecision(cause, step, f"{why} on {settings.patience} consecutive steps"))
    return min(fired, key=lambda decision: decision.step, default=None)


def _paper(trace: _Trace, settings: StoppingSection) -> list[tuple[Cause, Bools, str]]:
    growth, drop = settings.kl_growth, settings.reward_drop
    return [
        (Cause.STOPPED_KL, _growth(trace.kl) > growth, f"KL grew by more than {growth:.0%}"),
        (Cause.STOPPED_REWARD, -_growth(trace.reward) > drop, f"reward fell by more than {drop:.0%}"),
        (Cause.STOPPED_REWARD, trace.reward == 0, "reward was 0"),
    ]


def _robust(trace: _Trace, settings: StoppingSection) -> list[tuple[Cause, Bools, str]]:
    kl, floor, ceiling = _smooth(trace.kl, settings.patience), settings.kl_floor, settings.kl_ceiling
    entropy = _smooth(trace.entropy, settings.patience)
    # the KL starts at exactly 0 and rises like step²: its growth says nothing while training warms up
    growing = (_growth(kl) > settings.kl_growth) & (kl > floor) & (trace.step > settings.warmup_steps)
    return [
        (Cause.STOPPED_KL, growing, f"smoothed KL, above {floor:g}, grew by more than {settings.kl_growth:.0%}"),
        (Cause.STOPPED_KL, kl > ceiling, f"smoothed KL was above {ceiling:g}"),
        (Cause.STOPPED_KL, entropy < settings.entropy_floor, f"smoothed entropy was below {settings.entropy_floor:g}"),
        (
            Cause.STOPPED_REWARD,
            _collapsed(trace, settings),
            "smoothed reward was below its start",
        ),
    ]


def _collapsed(trace: _Trace, settings: StoppingSection) -> Bools:
    """Steps whose smoothed reward has given back all gains and lies below its best by more than noise explains.

    The drop is measured against the noise of single steps, the largest magnitude and the largest spread seen, never
    as a ratio of two rewards, so that signs and zeros do no harm.
    """
    reward = trace.reward
    smooth, start = _smooth(reward, settings.patience), _start(reward, settings.patience)
    # the best is a level that was held: one lucky step, or a cluster of rare successes, is no height to fall from
    held = _smooth(reward, 3 * settings.patience)
    best = np.maximum.accumulate(np.where(np.arange(len(held)) < settings.patience, start, held))
    # mean |difference| of normal noise is 2σ/√π; differences leave a trend out of the noise
    jumps = np.abs(np.diff(reward, prepend=reward[:1]))
    noise = np.cumsum(jumps) / np.maximum(np.arange(len(reward)), 1) * np.sqrt(np.pi) / 2
    reach = np.maximum.accumulate(np.maximum(np.abs(smooth), trace.reward_std))
    drop = best - smooth
    # what remains of the gains may be a sliver
    lost = smooth <= start + settings.reward_drop * np.maximum(best - start, 0)
    return np.asarray((drop > NOISE_FACTOR * noise) & (drop > settings.reward_drop * reach) & lost)


def _start(reward: Floats, span: int) -> Floats:
    """At each step the mean of the first ``span`` rewards, as far as they are known."""
    counts = np.minimum(np.arange(1, len(reward) + 1), span)
    return np.asarray(np.cumsum(reward)[counts - 1] / counts)


def _growth(series: Floats) -> Floats:
    """``(x_t − x_{t−1}) / x_{t−1}``, and 0, which never offends, where that is undefined (first step, zero)."""
    growth = np.zeros(len(series))
    with np.errstate(over="ignore"):  # from a denormal number on: infinite growth
        np.divide(np.diff(series), series[:-1], out=growth[1:], where=series[:-1] != 0)
    return growth


def _smooth(series: Floats, span: int) -> Floats:
    """Exponential moving average whose weights have their centre ``(span − 1) / 2`` steps back."""
    weight, smooth = 2 / (span + 1), series.copy()
    for t in range(1, len(smooth)):
        smooth[t] = weight * series[t] + (1 - weight) * smooth[t - 1]
    return smooth


def _streak(offending: Bools) -> NDArray[np.int64]:
    """Length of the unbroken run of offences that ends at each step."""
    index = np.arange(1, len(offending) + 1)
    return index - np.maximum.accumulate(np.where(offending, 0, index))
