"""Joint-fidelity search: the next trial is the one that teaches most about the target per second.

Trials 0 … ``initial`` are the recipe, given configurations and a space-filling set on the proxy at the smallest budget.
From then on every ask weighs new and known configurations on every model and budget by ``core.acquisition``:
``joint``, a step beyond the paper, whose improvement of the proxy over the target's incumbent (``paper``) is often 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.acquisition import expected_improvement, lookahead_std
from hpcjf.core.beliefs import Beliefs, Kernels, refits
from hpcjf.core.fidelity import marginal_steps
from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import History, Pending, SearchProblem
from hpcjf.core.surrogate import GaussianProcess, Inputs
from hpcjf.types import Config, Fidelity, Observation, Proposal, Scalar

Array = NDArray[np.float64]

_RANDOM, _TOP, _NEIGHBOURS = 300, 5, 12
"""New configurations per ask: random ones, and neighbours of the best ones."""
_PROMOTABLE, _WEIGHED = 60, 80
"""Most known and most new configurations that are weighed at every model and budget: an ask stays small."""
_PROBE_SHARE = 0.4
"""Least share of the trials after the initial design that try a configuration of another model on the target."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Trials that are allowed, ``[n]`` pairs; ``index[i]`` is the place of pair i's configuration in ``pool``."""

    pool: list[Config]
    index: list[int]
    fidelities: list[Fidelity]
    resumed: list[int]

    @property
    def configs(self) -> list[Config]:
        return [self.pool[i] for i in self.index]

    def probes(self, full: Fidelity, known: Collection[str]) -> NDArray[np.bool_]:
        """Those that try a configuration known from another model on the target, below its full budget if they can.

        A probe is to be cheap: what it finds good can be promoted from its checkpoint.
        """
        pairs = zip(self.configs, self.fidelities, strict=True)
        found = np.array([fidelity.model == full.model and config_id(config) in known for config, fidelity in pairs])
        cheap = found & np.array([fidelity.steps < full.steps for fidelity in self.fidelities])
        return cheap if cheap.any() else found


class JfhpoSearcher:
    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.history = History(problem)
        self._design = problem.space.space_filling(problem.initial, problem.seed)
        sizes = {model.name: model.parameters for model in (*problem.earlier_models, *problem.models)}
        self._inputs = Inputs(problem.space, sizes, problem.target, problem.rungs[0], problem.rungs[-1])
        self._kernels: Kernels | None = None
        self._beliefs: Beliefs | None = None

    def tell(self, observation: Observation) -> None:
        self.history.add(observation)
        self._beliefs = None

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if self.history.exhausted(pending):
            return None
        return self._initial(number, pending) or self._acquire(number, pending)

    def best(self) -> Config:
        """Largest posterior mean of the target at full budget among configurations that may be trained on it."""
        known = {o.config_id: o.config for o, _ in self.history.scored}
        open_ = [c for identity, c in known.items() if not self.history.closed(identity, self.problem.target)]
        if not open_:
            return self.problem.recipe
        beliefs = self._believe()
        mean = beliefs.target(beliefs.score, open_).mean
        return open_[int(np.argmax(np.where(self._allowed(beliefs, open_) >= 0.5, mean, mean - np.ptp(mean) - 1)))]

    def describe(self) -> Mapping[str, Scalar]:
        figures: dict[str, Scalar] = {"observations": len(self.history.scored), "failures": len(self.history.broken)}
        if self.history.scored:
            score = self._believe().score
            model, budget = score.shares
            figures |= {"model_share": model, "budget_share": budget, "noise_std": float(score.noise_variance**0.5)}
        return figures

    def _initial(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        first = Fidelity(self.problem.proxy, self.problem.rungs[0])
        reasons = [
            (self.problem.recipe, "recipe"),
            *((config, "given") for config in self.problem.given),
            *((self.problem.complete(c), "initial design") for c in self._design),
        ]
        if not self.history.scored:  # nothing to model yet: rather one more point than an idle node
            reasons.append((next(self.problem.draws(number)), "initial design"))
        for config, reason in reasons:
            identity = config_id(config)
            if self.history.open(identity, first, pending):
                return Proposal(config, first, {"reason": reason, "resumed_from": 0})
        return None

    def _acquire(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        beliefs = self._believe()
        score = beliefs.believing([p.config for p in pending], [p.fidelity for p in pending])
        candidates = self._candidates(number, pending, beliefs, score)
        if not candidates.index:
            return None
        target, there = (
            beliefs.target(score, candidates.pool),
            beliefs.at(score, candidates.configs, candidates.fidelities),
        )
        index = np.array(candidates.index)
        sigma = lookahead_std(score.covariance(target, there, index), there.variance, score.noise_variance)
        improvement = expected_improvement(target.mean[index], sigma, self._incumbent(beliefs, score))
        feasible = beliefs.feasible(candidates.configs, candidates.fidelities)
        improvement *= feasible * self._allowed(beliefs, candidates.pool)[index]
        cost = self._cost(beliefs, candidates)
        probe = self._probe_due(pending) & candidates.probes(self.problem.full, self._untried())
        eligible = np.where(probe, improvement, -1.0) if probe.any() else improvement
        chosen = int(np.argmax(eligible / cost ** self._thrift(pending)))
        resumed, place = candidates.resumed[chosen], candidates.index[chosen]
        why: dict[str, Scalar] = {
            "reason": "promotion" if resumed else "target probe" if probe.any() else "acquisition",
            "expected_improvement": float(improvement[chosen]),
            "marginal_cost_s": float(cost[chosen]),
            "target_mean": self._sign * float(target.mean[place]),
            "target_std": float(target.variance[place] ** 0.5),
            "feasible": float(feasible[chosen]),
            "candidates": len(candidates.index),
            "resumed_from": resumed,
        }
        return Proposal(candidates.pool[place], candidates.fidelities[chosen], why)

    def _probe_due(self, pending: Sequence[Pending]) -> bool:
        """Whether too few configurations ran on the target and on another model to tell what the proxy is worth."""
        runs = [(o.config_id, o.fidelity.model) for o, _ in self.history.scored]
        runs += [(p.config_id, p.fidelity.model) for p in pending]
        target = {identity for identity, model in runs if model == self.problem.target}
        shared = target & {identity for identity, model in runs if model != self.problem.target}
        return len(self.problem.models) > 1 and len(shared) < _PROBE_SHARE * (len(runs) - 1 - len(self._design))

    def _thrift(self, pending: Sequence[Pending]) -> float:
        """Exponent of the cost: 1, and fading to 0 over the last third of ``max_trials``, when trials run out first."""
        limit = self.problem.max_trials
        if limit is None:
            return 1.0
        left = limit - self.history.trials - len(pending) - 1
        return min(1.0, 3 * left / limit)

    @property
    def _sign(self) -> float:
        return 1.0 if self.problem.direction == "maximize" else -1.0

    def _believe(self) -> Beliefs:
        if self._beliefs is None:
            scored = self.history.scored
            for count in refits(len(scored)):
                if self._kernels is None or self._kernels.count < count:
                    fresh = count == refits(count)[0]
                    self._kernels = Kernels.fit(self._inputs, scored[:count], None if fresh else self._kernels)
            assert self._kernels is not None
            self._beliefs = Beliefs(self._inputs, self._kernels, scored, self.history.broken)
        return self._beliefs

    def _allowed(self, beliefs: Beliefs, configs: Sequence[Config]) -> Array:
        """Probability that the target stays below the KL's ceiling, ``[n]``."""
        ceiling = self.problem.kl_ceiling
        return np.ones(len(configs)) if ceiling is None else beliefs.within(configs, ceiling)

    def _untried(self) -> set[str]:
        """Configurations that have a score, but none on the target."""
        tried = {o.config_id for o, _ in self.history.scored if o.fidelity.model == self.problem.target}
        return {o.config_id for o, _ in self.history.scored} - tried

    def _known(self) -> list[Config]:
        return list({o.config_id: o.config for o, _ in self.history.scored}.values())

    def _incumbent(self, beliefs: Beliefs, score: GaussianProcess) -> float:
        """f*: largest posterior mean of the target at full budget among configurations seen there, else among all."""
        full = self.problem.full
        final = [o.config for o, _ in self.history.scored if o.fidelity == full]
        return float(np.max(beliefs.target(score, final or self._known()).mean))

    def _candidates(
        self, number: int, pending: Sequence[Pending], beliefs: Beliefs, score: GaussianProcess
    ) -> _Candidates:
        known = self._known()
        promotable = self._promising(known, _PROMOTABLE, beliefs, score)
        new = self._promising(list(self._new(number, promotable[:_TOP])), _WEIGHED, beliefs, score)
        found = _Candidates([*promotable, *new], [], [], [])
        fidelities = [Fidelity(model.name, steps) for model in self.problem.models for steps in self.problem.rungs]
        for place, config in enumerate(found.pool):
            identity = config_id(config)
            for fidelity in fidelities:
                if self.history.open(identity, fidelity, pending):
                    found.index.append(place)
                    found.fidelities.append(fidelity)
                    found.resumed.append(self.history.steps(identity, fidelity.model))
        return found

    def _promising(self, configs: list[Config], limit: int, beliefs: Beliefs, score: GaussianProcess) -> list[Config]:
        """At most ``limit`` configurations, by what the target may reach with them: mean and one standard deviation."""
        there = beliefs.target(score, configs)
        hopes = there.mean + np.sqrt(there.variance)
        return [configs[i] for i in np.argsort(-hopes, kind="stable")[:limit]]

    def _new(self, number: int, top: Sequence[Config]) -> Iterator[Config]:
        draws = self.problem.draws(number)
        yield from (next(draws) for _ in range(_RANDOM))
        rng = np.random.default_rng([self.problem.seed, number, 1])
        for config in top:
            for k in range(_NEIGHBOURS):
                yield self.problem.space.perturb(config, rng, scale=0.05 if k % 2 else 0.15)

    def _cost(self, beliefs: Beliefs, candidates: _Candidates) -> Array:
        """Marginal wall seconds: start-up and the steps still to run."""
        pairs = zip(candidates.resumed, candidates.fidelities, strict=True)
        steps = np.array([marginal_steps(resumed, fidelity.steps) for resumed, fidelity in pairs])
        startup = {model.name: beliefs.startup_seconds(model.name) for model in self.problem.models}
        pace = beliefs.seconds_per_step(candidates.configs, candidates.fidelities)
        return np.asarray([startup[f.model] for f in candidates.fidelities] + steps * pace)
