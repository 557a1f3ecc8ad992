"""The figures of finished races: every comparison is between two methods with the same seeds on the same problem."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from race.cases import BLOCKS, Case
from race.outcome import Interval, Outcome, interval, ranks, verdict
from race.problem import Array

Seeds = Mapping[int, Outcome]
Verdict = Literal["win", "tie", "loss"]
OURS, PAPER = "jfhpo", "jfhpo-paper-acquisition"
LARGEST_RATIO = 14
"""Of target to proxy in parameters, on the surfaces for which time per trial is claimed."""
MISLEADING, FAITHFUL = "arithmetic xs>m", "arithmetic s>m"
"""One target with a proxy that ranks unlike it, and with one that ranks alike."""
MISLED_AT = 10
"""Full trainings of the target that have been spent when the regret under a misleading proxy is read."""


class Board:
    """Outcomes by problem, method and seed."""

    def __init__(self, outcomes: Iterable[tuple[str, Outcome]]) -> None:
        self._known: dict[tuple[str, str], dict[int, Outcome]] = {}
        for problem, outcome in outcomes:
            self._known.setdefault((problem, outcome.method), {})[outcome.seed] = outcome

    @property
    def problems(self) -> list[str]:
        return list(dict.fromkeys(problem for problem, _ in self._known))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method in self._known))

    @property
    def opponents(self) -> list[str]:
        """All that is not a variant of ours."""
        return [method for method in self.methods if not method.startswith(OURS)]

    def of(self, problem: str, method: str, seeds: Container[int] | None = None) -> list[Outcome]:
        """In the order of their seeds."""
        known = self._known.get((problem, method), {})
        return [known[seed] for seed in sorted(known) if seeds is None or seed in seeds]

    def pairs(
        self, problem: str, one: str, other: str, seeds: Container[int] | None = None
    ) -> list[tuple[Outcome, Outcome]]:
        """Those of the seeds that both have."""
        others = {outcome.seed: outcome for outcome in self.of(problem, other, seeds)}
        return [(o, others[o.seed]) for o in self.of(problem, one, seeds) if o.seed in others]

    def advantage(self, problem: str, one: str, other: str, seeds: Container[int] | None = None) -> Interval | None:
        """How much less regret ``one`` has at the whole budget, in shares of the span."""
        pairs = self.pairs(problem, one, other, seeds)
        return interval([b.regret - a.regret for a, b in pairs]) if pairs else None

    def cost_ratio(self, problem: str, one: str, other: str) -> float | None:
        """Cost at which ``other`` has its final score over that at which ``one`` has it: the median over seeds.

        0 where ``one`` never gets there, so that a median of 0 says that it mostly does not.
        """
        pairs = self.pairs(problem, one, other)
        goals = [(a, b, b.truth_at(b.budget)) for a, b in pairs]
        ratios = [b.cost_to_reach(goal) / a.cost_to_reach(goal) for a, b, goal in goals]
        return float(np.median(ratios)) if ratios else None

    def reached(self, problem: str, one: str, other: str) -> float | None:
        """Share of the seeds in which ``one`` gets to the final score of ``other`` within the budget."""
        pairs = self.pairs(problem, one, other)
        return float(np.mean([np.isfinite(a.cost_to_reach(b.truth_at(b.budget))) for a, b in pairs])) if pairs else None

    def time_ratio(self, problem: str, one: str, other: str) -> float | None:
        """Average time per trial of ``other`` over that of ``one``."""
        times = np.array([(b.time_per_trial, a.time_per_trial) for a, b in self.pairs(problem, one, other)])
        return float(np.divide(*times.sum(axis=0))) if len(times) else None

    def verdicts(self, cases: Sequence[Case], one: str, other: str) -> dict[Case, Verdict]:
        """By those cases in which both were raced."""
        advantages = {case: self.advantage(case.problem, one, other, BLOCKS[case.block]) for case in cases}
        return {case: verdict(advantage) for case, advantage in advantages.items() if advantage}

    def ranks(self, methods: Sequence[str]) -> dict[str, Interval]:
        """Mean rank by final regret among ``methods``, over the problems and seeds that all of them have run."""
        rows = [row for problem in self.problems for row in self._regrets(problem, methods)]
        return {m: interval(column) for m, column in zip(methods, ranks(np.array(rows)).T, strict=True)} if rows else {}

    def _regrets(self, problem: str, methods: Sequence[str]) -> list[list[float]]:
        known = [{o.seed: o.regret for o in self.of(problem, method)} for method in methods]
        shared = set.intersection(*(set(each) for each in known)) if known else set()
        return [[each[seed] for each in known] for seed in sorted(shared)]


def typical(ratios: Iterable[float | None]) -> float | None:
    """Geometric mean of what was measured; 0 where one of them is."""
    known: Array = np.array([ratio for ratio in ratios if ratio is not None])
    if not len(known):
        return None
    return float(np.exp(np.mean(np.log(known)))) if (known > 0).all() else 0.0


def best_or_tied(board: Board, cases: Sequence[Case], one: str, others: Sequence[str]) -> dict[Case, bool]:
    """Whether ``one`` loses to none of ``others``, by the cases in which any of them was raced."""
    verdicts = [board.verdicts(cases, one, other) for other in others]
    known = {case: [each[case] for each in verdicts if case in each] for case in cases}
    return {case: "loss" not in each for case, each in known.items() if each}


def figures(board: Board, cases: Sequence[Case]) -> dict[str, float]:
    """The figures by their names; what was not measured is left out."""
    near, level = near_proxies(board), best_or_tied(board, cases, OURS, board.opponents)
    found: dict[str, float | None] = {}
    if level:
        found |= {"cases": len(level), "cases_best_or_tied": sum(level.values())}
    for other in ("random", "bohb"):
        found[f"time_per_trial_ratio_{other}"] = typical(board.time_ratio(p, OURS, other) for p in near)
        found[f"cost_to_target_ratio_{other}"] = typical(board.cost_ratio(p, OURS, other) for p in near)
    found["misleading_proxy_regret"] = misled(board.of(MISLEADING, OURS))
    found["misleading_proxy_regret_paper"] = misled(board.of(MISLEADING, PAPER))
    return {name: value for name, value in found.items() if value is not None}


def misled(known: Sequence[Outcome]) -> float | None:
    """Median regret after ``MISLED_AT`` full trainings' cost."""
    return float(np.median([o.regret_at(MISLED_AT * o.full) for o in known])) if known else None


def price_of_misleading(board: Board) -> Interval | None:
    """How much more it costs ours with the misleading proxy than with the faithful one to be as good as it is then.

    In full trainings of the target, seed by seed; what is not reached costs the whole budget.
    """
    one, other = ({o.seed: o for o in board.of(problem, OURS)} for problem in (MISLEADING, FAITHFUL))
    prices = []
    for seed in sorted(one.keys() & other.keys()):
        goal = one[seed].truth_at(MISLED_AT * one[seed].full)
        costs = (min(o.cost_to_reach(goal), o.budget) for o in (one[seed], other[seed]))
        prices.append((next(costs) - next(costs)) / one[seed].full)
    return interval(prices) if prices else None


def near_proxies(board: Board) -> list[str]:
    """Our RL surfaces, with a proxy that is not too small."""
    ours = {problem: board.of(problem, OURS)[:1] for problem in board.problems}
    return [p for p, each in ours.items() if any(o.dynamics and 1 < o.size_ratio <= LARGEST_RATIO for o in each)]
