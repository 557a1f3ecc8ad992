"""Stopping rules on recorded curves: how often one stops a trial that would have been good, and what it saves.

Good means: ends in the top quartile of the curves of its task and model. Steps saved are those of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal, NamedTuple

from scipy.stats import beta

from hpcjf.core.stopping import decide
from hpcjf.study import StoppingSection
from race.outcome import LEVEL
from race.problem import Curve
from race.simulation import rows_of

SETTLED_ON = "arithmetic"
"""The task on which thresholds may be tried; the figures that count come from the others."""
RULES: tuple[Literal["paper", "robust"], ...] = ("paper", "robust")
MOST_FALSE_STOPS = 0.02
"""Share of the good trials that a rule may stop, by which thresholds are chosen."""
_CHOICES: Mapping[str, Sequence[float]] = {
    "patience": (3, 5, 8),
    "warmup_steps": (5, 10, 20),
    "reward_drop": (0.05, 0.1, 0.2),
    "kl_growth": (0.1, 0.15, 0.25),
    "kl_ceiling": (0.25, 0.5, 1.0, 2.0),
}


class Recorded(NamedTuple):
    """A curve and what it was recorded on."""

    task: str
    model: str
    curve: Curve


@dataclass(frozen=True)
class Rates:
    """``stopped`` of ``good`` trials were stopped, and ``saved`` of ``steps`` steps of the others were not run."""

    good: int
    stopped: int
    steps: int
    saved: int

    @property
    def false_stop_rate(self) -> float:
        return self.stopped / self.good

    @property
    def steps_saved(self) -> float:
        return self.saved / self.steps

    @property
    def bounds(self) -> tuple[float, float]:
        """Exact binomial interval of the false-stop rate (Clopper and Pearson 1934)."""
        k, n, tail = self.stopped, self.good, (1 - LEVEL) / 2
        low = 0.0 if k == 0 else float(beta.ppf(tail, k, n - k + 1))
        high = 1.0 if k == n else float(beta.ppf(1 - tail, k + 1, n - k))
        return low, high


class Measured(NamedTuple):
    """A rule on the curves of a task; ``thresholds`` says which, where they are not the defaults."""

    rule: str
    task: str
    thresholds: str
    rates: Rates


def rates(recorded: Iterable[Recorded], settings: StoppingSection) -> Rates:
    """What a rule does on curves that nobody had stopped."""
    good = stopped = steps = saved = 0
    for curves in _groups(recorded):
        finals = [_final(curve) for curve in curves]
        threshold = sorted(finals)[3 * len(finals) // 4]
        for curve, final in zip(curves, finals, strict=True):
            whole, reached = len(curve.seconds) if curve.broken is None else curve.broken, _stopped_at(curve, settings)
            if final >= threshold > -math.inf:
                good += 1
                stopped += reached < whole
            else:
                steps += whole
                saved += whole - reached
    return Rates(good, stopped, steps, saved)


def measure(recorded: Sequence[Recorded], chosen: bool = True) -> list[Measured]:
    """The rules as they are, on every task; with ``chosen`` also ``robust`` with thresholds from each other task."""
    by_task: dict[str, list[Recorded]] = {}
    for task, model, curve in recorded:
        by_task.setdefault(task, []).append(Recorded(task, model, curve))
    found = [
        Measured(rule, task, "", rates(curves, StoppingSection(rule=rule)))
        for rule in RULES
        for task, curves in by_task.items()
    ]
    for one, other in itertools.permutations(by_task, 2) if chosen else ():
        settings = choose(by_task[one])
        values = ", ".join(f"{name} {getattr(settings, name):g}" for name in _CHOICES)
        found.append(Measured("robust", other, f"from {one}: {values}", rates(by_task[other], settings)))
    return found


def figures(measured: Iterable[Measured]) -> dict[str, float]:
    """The rules as they are, over all tasks but the one on which the defaults were set."""
    found: dict[str, float] = {}
    apart = [each for each in measured if not each.thresholds and each.task != SETTLED_ON]
    for rule in RULES:
        parts = [astuple(each.rates) for each in apart if each.rule == rule]
        if parts:
            whole, end = Rates(*map(sum, zip(*parts, strict=True))), "" if rule == "robust" else f"_{rule}"
            found |= {f"false_stop_rate{end}": whole.false_stop_rate, f"steps_saved{end}": whole.steps_saved}
    return found


def choose(recorded: Sequence[Recorded]) -> StoppingSection:
    """The thresholds of ``robust`` that save most on these curves while they stop few enough of the good ones."""
    grid = (dict(zip(_CHOICES, values, strict=True)) for values in itertools.product(*_CHOICES.values()))
    found = [(settings, rates(recorded, settings)) for settings in map(StoppingSection.model_validate, grid)]
    allowed = [(s, r) for s, r in found if r.false_stop_rate <= MOST_FALSE_STOPS]
    return max(allowed or found, key=lambda each: (each[1].steps_saved, -each[1].stopped))[0]


def _groups(recorded: Iterable[Recorded]) -> Iterable[list[Curve]]:
    groups: dict[tuple[str, str], list[Curve]] = {}
    for task, model, curve in recorded:
        groups.setdefault((task, model), []).append(curve)
    return groups.values()


def _final(curve: Curve) -> float:
    score = curve.score_at(len(curve.seconds))
    return -math.inf if score is None else score


def _stopped_at(curve: Curve, settings: StoppingSection) -> int:
    """The last step that is run."""
    whole = len(curve.seconds) if curve.broken is None else curve.broken
    decision = decide(rows_of(curve, whole), settings)
    return whole if decision is None else decision.step
