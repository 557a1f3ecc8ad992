"""Joint-fidelity search: the next trial is the one that teaches most about the target per second.

Trials 0 … ``initial`` are the recipe and a space-filling set on the proxy at the smallest budget. From then on every
ask weighs new and known configurations on every model and budget by ``core.acquisition`` (a step beyond the paper,
whose improvement of the proxy over the target's incumbent is often 0).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.acquisition import expected_improvement, lookahead_std
from hpcjf.core.beliefs import Beliefs
from hpcjf.core.fidelity import marginal_steps
from hpcjf.core.identity import config_id
from hpcjf.core.searchers.base import History, Pending, SearchProblem
from hpcjf.core.surrogate import GaussianProcess, Inputs
from hpcjf.types import Config, Fidelity, Observation, Proposal, Scalar

Array = NDArray[np.float64]

_RANDOM, _TOP, _NEIGHBOURS = 300, 5, 12
"""New configurations per ask: random ones, and neighbours of the best ones."""
_PROMOTABLE, _ACTIVE = 100, 250
"""Most known configurations weighed for promotion, and most observations in the surrogate: an ask stays small."""
_PROBE_SHARE = 0.4
"""Least share of the trials after the initial design that try a configuration of another model on the target."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Trials that are allowed: ``[n]`` pairs."""

    configs: list[Config]
    fidelities: list[Fidelity]
    resumed: list[int]

    def probes(self, full: Fidelity, known: Collection[str]) -> NDArray[np.bool_]:
        """Those that try a configuration known from another model on the target, below its full budget if they can.

        A probe is to be cheap: what it finds good can be promoted from its checkpoint.
        """
        pairs = zip(self.configs, self.fidelities, strict=True)
        found = np.array([fidelity.model == full.model and config_id(config) in known for config, fidelity in pairs])
        cheap = found & np.array([fidelity.steps < full.steps for fidelity in self.fidelities])
        return cheap if cheap.any() else found


def active_set(scored: Sequence[tuple[Observation, float]], limit: int) -> Sequence[tuple[Observation, float]]:
    """At most ``limit`` observations in their order: the best half of that, and an even sample of the others."""
    if len(scored) <= limit:
        return scored
    ranked = sorted(range(len(scored)), key=lambda i: -scored[i][1])
    best = ranked[: limit // 2]
    others = sorted(ranked[limit // 2 :])
    picked = np.linspace(0, len(others) - 1, limit - len(best)).astype(int)
    return [scored[i] for i in sorted([*best, *(others[k] for k in picked)])]


class JfhpoSearcher:
    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.history = History(problem)
        self._design = problem.space.space_filling(problem.initial, problem.seed)
        self._fitted: Beliefs | None = None

    def tell(self, observation: Observation) -> None:
        self.history.add(observation)
        self._fitted = None

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        if self.history.exhausted(pending):
            return None
        return self._initial(number, pending) or self._acquire(number, pending)

    def best(self) -> Config:
        """Largest posterior mean of the target at full budget among configurations that may be trained on it."""
        known = {o.config_id: o.config for o, _ in self.history.scored}
        known = {identity: c for identity, c in known.items() if not self.history.closed(identity, self.problem.target)}
        if not known:
            return self.problem.recipe
        beliefs = self._beliefs()
        return list(known.values())[int(np.argmax(beliefs.target_mean(beliefs.score, list(known.values()))))]

    def describe(self) -> Mapping[str, Scalar]:
        figures: dict[str, Scalar] = {"observations": len(self.history.scored), "failures": len(self.history.broken)}
        if self.history.scored:
            score = self._beliefs().score
            model, budget = (float(length) for length in score.lengths[-2:])
            figures |= {"model_length": model, "budget_length": budget, "noise_std": float(score.noise_variance**0.5)}
        return figures

    def _initial(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        first = Fidelity(self.problem.proxy, self.problem.rungs[0])
        reasons = [
            (self.problem.recipe, "recipe"),
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
        beliefs = self._beliefs()
        score = beliefs.believing([p.config for p in pending], [p.fidelity for p in pending])
        candidates = self._candidates(number, pending, beliefs, score)
        if not candidates.configs:
            return None
        joint = beliefs.joint(score, candidates.configs, candidates.fidelities)
        sigma = lookahead_std(joint.covariance, joint.variance_there, joint.noise)
        improvement = expected_improvement(joint.mean, sigma, self._incumbent(beliefs, score))
        improvement *= beliefs.feasible(candidates.configs, candidates.fidelities)
        cost = self._cost(beliefs, candidates)
        probe = self._probe_due(pending) & candidates.probes(self.problem.full, self._untried())
        eligible = np.where(probe, improvement, -1.0) if probe.any() else improvement
        chosen = int(np.argmax(eligible / cost ** self._thrift(pending)))
        resumed = candidates.resumed[chosen]
        why: dict[str, Scalar] = {
            "reason": "promotion" if resumed else "target probe" if probe.any() else "acquisition",
            "expected_improvement": float(improvement[chosen]),
            "marginal_cost_s": float(cost[chosen]),
            "target_mean": self._sign * float(joint.mean[chosen]),
            "target_std": float(joint.variance[chosen] ** 0.5),
            "resumed_from": resumed,
        }
        return Proposal(candidates.configs[chosen], candidates.fidelities[chosen], why)

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

    def _beliefs(self) -> Beliefs:
        if self._fitted is None:
            problem = self.problem
            sizes = {model.name: model.parameters for model in problem.models}
            inputs = Inputs(problem.space, sizes, problem.rungs[0], problem.rungs[-1])
            observations, values = zip(*active_set(self.history.scored, _ACTIVE), strict=True)
            self._fitted = Beliefs(inputs, observations, values, self.history.broken[-_ACTIVE:])
        return self._fitted

    def _untried(self) -> set[str]:
        """Configurations that have a score, but none on the target."""
        tried = {o.config_id for o, _ in self.history.scored if o.fidelity.model == self.problem.target}
        return {o.config_id for o, _ in self.history.scored} - tried

    def _known(self) -> list[Config]:
        return list({o.config_id: o.config for o, _ in self.history.scored}.values())

    def _incumbent(self, beliefs: Beliefs, score: GaussianProcess) -> float:
        """f*: largest posterior mean among configurations seen at the target's full budget, else among all seen."""
        full = self.problem.full
        final = [o.config for o, _ in self.history.scored if o.fidelity == full]
        return float(np.max(beliefs.target_mean(score, final or self._known())))

    def _candidates(
        self, number: int, pending: Sequence[Pending], beliefs: Beliefs, score: GaussianProcess
    ) -> _Candidates:
        known = self._known()
        ranked = np.argsort(-beliefs.target_mean(score, known), kind="stable")[:_PROMOTABLE]
        promotable = [known[i] for i in ranked]
        pool = [*promotable, *self._new(number, promotable[:_TOP])]
        found = _Candidates([], [], [])
        fidelities = [Fidelity(model.name, steps) for model in self.problem.models for steps in self.problem.rungs]
        for config in pool:
            identity = config_id(config)
            for fidelity in fidelities:
                if self.history.open(identity, fidelity, pending):
                    found.configs.append(config)
                    found.fidelities.append(fidelity)
                    found.resumed.append(self.history.steps(identity, fidelity.model))
        return found

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
