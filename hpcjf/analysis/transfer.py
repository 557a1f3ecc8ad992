"""Whether a smaller model ranks configurations as the target does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.analysis.load import RunData
from hpcjf.analysis.rungs import scores_by_fidelity
from hpcjf.types import Fidelity

Groups = Mapping[Fidelity, Mapping[str, float]]
ENOUGH = 4


@dataclass(frozen=True, slots=True)
class Transfer:
    """Rank correlations over the ``count`` configurations scored at both fidelities; None under four, or all ties."""

    proxy: Fidelity
    target: Fidelity
    count: int
    spearman: float | None
    kendall: float | None


def transfer(run: RunData) -> tuple[Transfer, ...]:
    """For each model below the target, at the pair of budgets that shares most configurations (then: the deepest)."""
    groups = scores_by_fidelity(run)
    names = [model.name for model in run.study.models]
    checks = []
    for name in names[:-1]:
        pairs = [(p, t) for p in groups if p.model == name for t in groups if t.model == names[-1]]
        if pairs:
            checks.append(_check(groups, *max(pairs, key=lambda pair: _weight(groups, *pair))))
    return tuple(checks)


def _weight(groups: Groups, proxy: Fidelity, target: Fidelity) -> tuple[int, int, int]:
    return len(groups[proxy].keys() & groups[target].keys()), target.steps, proxy.steps


def _check(groups: Groups, proxy: Fidelity, target: Fidelity) -> Transfer:
    both = sorted(groups[proxy].keys() & groups[target].keys())
    left = np.array([groups[proxy][config] for config in both])
    right = np.array([groups[target][config] for config in both])
    rho, tau = (spearman(left, right), kendall(left, right)) if len(both) >= ENOUGH else (None, None)
    return Transfer(proxy, target, len(both), rho, tau)


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float | None:
    """Pearson's correlation of the ranks, ties at their mean rank; None where one side is constant."""
    x, y = _ranks(left), _ranks(right)
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale else None


def kendall(left: NDArray[np.float64], right: NDArray[np.float64]) -> float | None:
    """Tau-b; None where one side is constant."""
    upper = np.triu_indices(len(left), k=1)
    x = np.sign(left[:, None] - left[None, :])[upper]
    y = np.sign(right[:, None] - right[None, :])[upper]
    scale = np.sqrt(np.abs(x).sum() * np.abs(y).sum())
    return float((x * y).sum() / scale) if scale else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks
