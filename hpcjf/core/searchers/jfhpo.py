"""Joint-fidelity search: the next trial is the one that teaches most about the target per second.

Trials 0 … ``initial`` are the recipe, given configurations and a space-filling set on the proxy at the smallest budget.
From then on every ask weighs new and known configurations on every model and budget by ``core.acquisition``:
``joint``, a step beyond the paper, whose improvement of the proxy over the target's incumbent (``paper``) is often 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcjf.core.acquisition import expected_improvement, lookahead_std
from hpcjf.core.beliefs import Beliefs, Kernels, refits
from hpcjf.core.fidelity import marginal_steps
from hpcjf.core.identity import config_id
from hpcjf.core.ranks import ENOUGH, LOW, spearman
from hpcjf.core.searchers.base import History, Pending, SearchProblem
from hpcjf.core.surrogate import GaussianProcess, Inputs
from hpcjf.types import Config, Fidelity, Observation, Proposal, Scalar

Array = NDArray[np.float64]

_RANDOM, _TOP, _NEIGHBOURS = 300, 5, 12
"""New configurations per ask: random ones, and neighbours of the best ones."""
_PROMOTABLE, _WEIGHED = 60, 80
"""Most known and most new configurations that are weighed at every model and budget: an ask stays small."""
_FIRST_PROBES, _PROBE_SHARE = 0.4, 0.1
"""Least share of the trials after the initial design that try a configuration of another model on the target: at first,
until both can be compared, and from then on."""
_FULL_SHARE = 0.5
"""Least share of the cost that goes into full runs of the target: only they tell what a final run will give."""
_LOW_SHARE = 0.25
"""Most of the cost that a smaller model may take while it ranks configurations unlike the target."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Trials that are allowed, ``[n]`` pairs; ``index[i]`` is the place of pair i's configuration in ``pool``."""

    pool: list[Config]
    index: list[int]
    fidelities: list[Fidelity]
    resumed: list[int]

    def probes(self, full: Fidelity, known: Collection[str]) -> NDArray[np.bool_]:
        """Those that try a configuration known from another model on the target, below its full budget if they can.

        A probe is to be cheap: what it finds good can be promoted from its checkpoint.
        """
        met = [config_id(config) in known for config in self.pool]
        pairs = zip(self.index, self.fidelities, strict=True)
        found = np.array([fidelity.model == full.model and met[place] for place, fidelity in pairs])
        cheap = found & np.array([fidelity.steps < full.steps for fidelity in self.fidelities])
        return cheap if cheap.any() else found


class JfhpoSearcher:
    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.history, self._earlier = History(problem), History(problem)
        for observation in problem.earlier:
            self._earlier.add(observation)
        design = [] if self._earlier.scored else problem.space.space_filling(problem.initial, problem.seed)
        self._start = [
            (problem.recipe, "recipe"),
            *((config, "given") for config in problem.given),
            *((problem.complete(config), "initial design") for config in design),
        ]
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
        initial = self._initial(number, pending)
        return initial if initial or not self._scored else self._acquire(number, pending)

    @property
    def _scored(self) -> list[tuple[Observation, float]]:
        """With the mean of late scores as their value, where there is one."""
        told = [*self._earlier.scored, *self.history.scored]
        return [(o, value if o.late_score is None else self._sign * o.late_score) for o, value in told]

    def best(self) -> Config:
        """Largest posterior mean of the target at full budget among configurations that may be trained on it."""
        known = {o.config_id: o.config for o, _ in self.history.scored}
        open_ = [c for identity, c in known.items() if not self.history.closed(identity, self.problem.target)]
        if not open_:
            return self.problem.recipe
        beliefs, rows = self._believe(), self._inputs.at_full(self.problem.space.encode(open_))
        mean = beliefs.score.mean(rows)
        return open_[int(np.argmax(np.where(self._allowed(beliefs, rows) >= 0.5, mean, mean - np.ptp(mean) - 1)))]

    def describe(self) -> Mapping[str, Scalar]:
        figures: dict[str, Scalar] = {"observations": len(self.history.scored), "failures": len(self.history.broken)}
        if self._scored:
            score = self._believe().score
            model, budget = score.trust
            figures |= {
                "model_trust": model,
                "budget_trust": budget,
                "noise_std": float(score.noise_variance(np.zeros((1, score.inputs.shape[1])))[0] ** 0.5),
            }
        return figures

    def _initial(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        first, start = Fidelity(self.problem.proxy, self.problem.rungs[0]), list(self._start)
        if not self._scored:  # nothing to model yet: rather one more point than an idle node
            start.append((next(self.problem.draws(number)), "initial design"))
        for config, reason in start:
            identity = config_id(config)
            if self.history.open(identity, first, pending):
                return Proposal(config, first, {"reason": reason, "resumed_from": 0})
        return None

    def _acquire(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        beliefs = self._believe()
        score = beliefs.believing([p.config for p in pending], [p.fidelity for p in pending])
        spent = self._spent(beliefs, pending)
        full_due = self.problem.acquisition == "joint" and self._full_due(beliefs, spent)
        exploration = self._exploration(number, pending, beliefs, score) if full_due else None
        if exploration:
            return exploration
        candidates = self._candidates(number, pending, score)
        if not candidates.index:
            return None
        index, fidelities = np.array(candidates.index), candidates.fidelities
        encoded = self.problem.space.encode(candidates.pool)
        finals = self._inputs.at_full(encoded)
        rows = np.hstack([encoded[index], self._inputs.places(fidelities)])
        target, there = score.look(finals), score.look(rows)
        if self.problem.acquisition == "paper":
            gain = there.mean + beliefs.trend(fidelities), np.sqrt(there.variance)
        else:
            covariance = score.covariance(target, there, index)
            gain = target.mean[index], lookahead_std(covariance, there.variance, score.noise_variance(rows))
        improvement = expected_improvement(*gain, self._incumbent(score))
        feasible = beliefs.feasible(rows)
        improvement *= feasible * self._allowed(beliefs, finals)[index]
        cost = self._cost(beliefs, candidates, rows)
        wanted, reason, transfer = self._wanted(score, candidates, pending, spent, full_due=full_due)
        eligible = np.where(wanted, improvement, -1.0) if wanted.any() else improvement
        chosen = int(np.argmax(eligible / cost ** self._thrift(pending)))
        resumed, place = candidates.resumed[chosen], candidates.index[chosen]
        why: dict[str, Scalar] = {
            "reason": "promotion" if resumed else reason,
            "expected_improvement": float(improvement[chosen]),
            "marginal_cost_s": float(cost[chosen]),
            "target_mean": self._sign * float(target.mean[place]),
            "target_std": float(target.variance[place] ** 0.5),
            "feasible": float(feasible[chosen]),
            "candidates": len(candidates.index),
            "resumed_from": resumed,
            **transfer,
        }
        return Proposal(candidates.pool[place], candidates.fidelities[chosen], why)

    def _exploration(
        self, number: int, pending: Sequence[Pending], beliefs: Beliefs, score: GaussianProcess
    ) -> Proposal | None:
        """Every other full run of the target: a random configuration of the better half. A surrogate that is sure of
        something wrong learns it from nothing else.
        """
        full = self.problem.full
        runs = sum(o.fidelity == full for o, _ in self.history.scored) + sum(p.fidelity == full for p in pending)
        if runs % 2 == 0:
            return None
        drawn = [c for c in self._new(number, []) if self.history.open(config_id(c), full, pending)]
        rows = self._inputs.at_full(self.problem.space.encode(drawn))
        target, likely = score.look(rows), beliefs.feasible(rows) * self._allowed(beliefs, rows) >= 0.5
        found = np.flatnonzero(likely & (target.mean >= np.median(target.mean)))
        if not found.size:
            return None
        place = int(found[0])
        why: dict[str, Scalar] = {
            "reason": "exploration",
            "target_mean": self._sign * float(target.mean[place]),
            "target_std": float(target.variance[place] ** 0.5),
            "resumed_from": self.history.steps(config_id(drawn[place]), full.model),
        }
        return Proposal(drawn[place], full, why)

    def _wanted(
        self,
        score: GaussianProcess,
        candidates: _Candidates,
        pending: Sequence[Pending],
        spent: Sequence[tuple[Fidelity, float]],
        *,
        full_due: bool,
    ) -> tuple[NDArray[np.bool_], str, dict[str, Scalar]]:
        """Candidates of which the trial is to be one, if there are any such; why; how well the smaller models rank."""
        full, none = self.problem.full, np.zeros(len(candidates.index), dtype=bool)
        if self.problem.acquisition == "paper":
            return none, "acquisition", {}
        if full_due:
            return np.array([fidelity == full for fidelity in candidates.fidelities]), "full run", {}
        if self._probe_due(pending):
            return candidates.probes(full, self._untried()), "target probe", {}
        ranks = self._ranks(score)
        total = sum(cost for _, cost in spent)
        barred = {
            model
            for model, rank in ranks.items()
            if rank < LOW and sum(cost for fidelity, cost in spent if fidelity.model == model) > _LOW_SHARE * total
        }
        allowed = np.array([fidelity.model not in barred for fidelity in candidates.fidelities])
        worst: dict[str, Scalar] = {"transfer_spearman": min(ranks.values())} if ranks else {}
        return allowed if barred else none, "larger model" if barred else "acquisition", worst

    def _ranks(self, score: GaussianProcess) -> dict[str, float]:
        """Spearman between each smaller model and the target, of what is expected of known configurations at full
        budget; models on which too few of the target's configurations ran are left out.
        """
        shared: dict[str, set[str]] = {model.name: set() for model in self.problem.models}
        for o, _ in self.history.scored:
            shared[o.fidelity.model].add(o.config_id)
        target = self.problem.target
        encoded = self.problem.space.encode(self._known())
        expected = score.mean(self._inputs.at_full(encoded))
        ranks = {}
        for model in shared:
            if model != target and len(shared[model] & shared[target]) >= ENOUGH:
                place = np.tile(self._inputs.places([Fidelity(model, self.problem.full.steps)]), (len(encoded), 1))
                ranks[model] = spearman(score.mean(np.hstack([encoded, place])), expected)
        return {model: rank for model, rank in ranks.items() if rank is not None}

    def _spent(self, beliefs: Beliefs, pending: Sequence[Pending]) -> list[tuple[Fidelity, float]]:
        """Seconds of every scored trial, and expected ones of those in flight."""
        fidelities = [p.fidelity for p in pending]
        rows = self._inputs.encode([p.config for p in pending], fidelities)
        expected = beliefs.seconds_per_step(rows, fidelities) * [fidelity.steps for fidelity in fidelities]
        told = [(o.fidelity, o.seconds + o.startup_seconds) for o, _ in self.history.scored]
        return told + list(zip(fidelities, expected.tolist(), strict=True))

    def _full_due(self, beliefs: Beliefs, spent: Sequence[tuple[Fidelity, float]]) -> bool:
        """Whether full runs of the target have cost less than their share, half a run short of it at most."""
        full = self.problem.full
        recipe = self._inputs.encode([self.problem.recipe], [full])
        run = beliefs.startup_seconds(full.model) + float(beliefs.seconds_per_step(recipe, [full])[0]) * full.steps
        ours = sum(cost for fidelity, cost in spent if fidelity == full)
        return ours + run / 2 < _FULL_SHARE * sum(cost for _, cost in spent)

    def _probe_due(self, pending: Sequence[Pending]) -> bool:
        """Whether too few configurations ran on the target and on another model to tell what the proxy is worth."""
        runs = [(o.config_id, o.fidelity.model) for o, _ in self.history.scored]
        runs += [(p.config_id, p.fidelity.model) for p in pending]
        target = {identity for identity, model in runs if model == self.problem.target}
        shared = target & {identity for identity, model in runs if model != self.problem.target}
        weighed = len(runs) - len(self._start)
        least = min(ENOUGH, _FIRST_PROBES * weighed)
        return len(self.problem.models) > 1 and len(shared) < max(least, _PROBE_SHARE * weighed)

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
            scored, with_kl = self._scored, self.problem.kl_ceiling is not None
            for count in refits(len(scored)):
                if self._kernels is None or self._kernels.count < count:
                    fresh = count == refits(count)[0]
                    self._kernels = Kernels.fit(
                        self._inputs, scored[:count], None if fresh else self._kernels, with_kl=with_kl
                    )
            assert self._kernels is not None
            self._beliefs = Beliefs(self._inputs, self._kernels, scored, [*self._earlier.broken, *self.history.broken])
        return self._beliefs

    def _allowed(self, beliefs: Beliefs, rows: Array) -> Array:
        """Probability that a trial stays below the KL's ceiling, ``[n]``."""
        ceiling = self.problem.kl_ceiling
        return np.ones(len(rows)) if ceiling is None else beliefs.within(rows, ceiling)

    def _untried(self) -> set[str]:
        """Configurations that have a score, but none on the target."""
        tried = {o.config_id for o, _ in self.history.scored if o.fidelity.model == self.problem.target}
        return {o.config_id for o, _ in self.history.scored} - tried

    def _known(self) -> list[Config]:
        return list({o.config_id: o.config for o, _ in self._scored}.values())

    def _incumbent(self, score: GaussianProcess) -> float:
        """f*: largest posterior mean of the target at full budget among configurations seen there, else among all."""
        full = self.problem.full
        seen = [o.config for o, _ in self.history.scored if o.fidelity == full] or self._known()
        return float(np.max(score.mean(self._inputs.at_full(self.problem.space.encode(seen)))))

    def _candidates(self, number: int, pending: Sequence[Pending], score: GaussianProcess) -> _Candidates:
        promotable = self._promising(self._known(), _PROMOTABLE, score)
        new = self._promising(self._new(number, promotable[:_TOP]), _WEIGHED, score)
        found = _Candidates([*promotable, *new], [], [], [])
        models = self.problem.models[:1] if self.problem.acquisition == "paper" else self.problem.models
        fidelities = [Fidelity(model.name, steps) for model in models for steps in self.problem.rungs]
        for place, config in enumerate(found.pool):
            identity = config_id(config)
            for fidelity in fidelities:
                if self.history.open(identity, fidelity, pending):
                    found.index.append(place)
                    found.fidelities.append(fidelity)
                    found.resumed.append(self.history.steps(identity, fidelity.model))
        return found

    def _promising(self, configs: list[Config], limit: int, score: GaussianProcess) -> list[Config]:
        """At most ``limit`` configurations, by what the target may reach with them: mean and one standard deviation."""
        there = score.look(self._inputs.at_full(self.problem.space.encode(configs)))
        hopes = there.mean + np.sqrt(there.variance)
        return [configs[i] for i in np.argsort(-hopes, kind="stable")[:limit]]

    def _new(self, number: int, top: Sequence[Config]) -> list[Config]:
        problem, rng = self.problem, np.random.default_rng([self.problem.seed, number, 1])
        drawn = [problem.complete(config) for config in problem.space.sample(_RANDOM, rng)]
        scales = [0.05 if k % 2 else 0.15 for k in range(_NEIGHBOURS)]
        return drawn + [near for config in top for near in problem.space.neighbours(config, rng, scales)]

    def _cost(self, beliefs: Beliefs, candidates: _Candidates, rows: Array) -> Array:
        """Marginal wall seconds: start-up and the steps still to run."""
        fidelities = candidates.fidelities
        pairs = zip(candidates.resumed, fidelities, strict=True)
        steps = np.array([marginal_steps(resumed, fidelity.steps) for resumed, fidelity in pairs])
        startup = {model.name: beliefs.startup_seconds(model.name) for model in self.problem.models}
        pace = beliefs.seconds_per_step(rows, fidelities)
        return np.asarray([startup[f.model] for f in fidelities] + steps * pace)
