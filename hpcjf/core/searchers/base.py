"""The ask/tell contract of all methods, and the memory that they share.

A searcher holds nothing but what it was told. Randomness comes from ``(problem.seed, trial number)`` alone, so that
replaying the tells of a journal rebuilds it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

import numpy as np

from hpcjf.core.fidelity import checkpoint_at
from hpcjf.core.identity import config_id
from hpcjf.core.space import Space
from hpcjf.errors import StudyError
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal, Scalar, Trial

_BROKEN = frozenset({Cause.DIVERGED, Cause.OUT_OF_MEMORY, Cause.FAILED})


@dataclass(frozen=True, slots=True)
class ModelFidelity:
    """A model of the study; ``parameters`` is its count of weights."""

    name: str
    parameters: int


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """What is searched. ``models`` run from proxy to target, ``rungs`` from the smallest to the full budget.

    ``recipe`` has a value for every name of the space; names beyond it go unchanged into every proposal.
    ``initial`` counts the space-filling trials, ``max_trials`` all search trials, the recipe's included. ``given`` are
    configurations to try right after the recipe. ``earlier`` was observed by another study over the same space, on
    models of this study or of ``earlier_models``. ``kl_ceiling`` bounds the KL of a winner, nats per token.
    """

    space: Space
    models: tuple[ModelFidelity, ...]
    rungs: tuple[int, ...]
    recipe: Config
    direction: Literal["maximize", "minimize"] = "maximize"
    seed: int = 0
    max_trials: int | None = None
    initial: int = 4
    save_every: int = 10
    eta: float = 3.0
    given: tuple[Config, ...] = ()
    earlier: tuple[Observation, ...] = ()
    earlier_models: tuple[ModelFidelity, ...] = ()
    kl_ceiling: float | None = None
    acquisition: Literal["joint", "paper"] = "joint"

    def __post_init__(self) -> None:
        missing = [name for name in self.space.active(self.recipe) if name not in self.recipe]
        if missing:
            fix = "give the recipe a value for each dimension of space"
            raise StudyError(f"the recipe lacks {', '.join(missing)}", where="recipe", fix=fix)
        object.__setattr__(self, "recipe", self.space.canonical(self.recipe))
        object.__setattr__(self, "given", tuple(map(self.complete, self.given)))

    @property
    def proxy(self) -> str:
        return self.models[0].name

    @property
    def target(self) -> str:
        return self.models[-1].name

    @property
    def full(self) -> Fidelity:
        """The target at its full budget: what the search is about."""
        return Fidelity(self.target, self.rungs[-1])

    def complete(self, config: Config) -> Config:
        """``config`` with the recipe's values where it has none, and without inactive dimensions."""
        return self.space.canonical({**self.space.defaults, **self.recipe, **config})

    def draws(self, number: int) -> Iterator[Config]:
        """Endless random configurations for trial ``number``."""
        rng = np.random.default_rng([self.seed, number])
        while True:
            yield from (self.complete(config) for config in self.space.sample(16, rng))


@dataclass(frozen=True, slots=True)
class Pending:
    """A trial that was asked for and has not been told; ``why`` are the figures of its proposal."""

    config_id: str
    config: Config
    fidelity: Fidelity
    why: Mapping[str, Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, trial: Trial | Proposal) -> Self:
        return cls(config_id(trial.config), trial.config, trial.fidelity, trial.why)


class Searcher(Protocol):
    """``tell`` only search trials, in the order of the journal; ``ask`` changes nothing."""

    def tell(self, observation: Observation) -> None: ...

    def ask(self, number: int, pending: Sequence[Pending]) -> Proposal | None:
        """The proposal for trial ``number``, or None where there is nothing (more) to run for now."""

    def best(self) -> Config:
        """The configuration to train the target with: one that was observed, else the recipe."""

    def describe(self) -> Mapping[str, Scalar]:
        """Figures on the state of the method, for people."""


class History:
    """What was told, with ``value`` to be maximised; causes of the infrastructure leave only a count of trials."""

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.scored: list[tuple[Observation, float]] = []
        self.broken: list[Observation] = []
        self._seen: dict[tuple[str, str], int] = {}
        self._checkpoints: dict[tuple[str, str], int] = {}
        self._closed: set[tuple[str, str]] = set()
        self._trials: set[int] = set()

    def add(self, observation: Observation) -> None:
        self._trials.add(observation.trial)
        cause, key = observation.cause, (observation.config_id, observation.fidelity.model)
        if cause.infrastructure:
            return
        self._seen[key] = max(self._seen.get(key, 0), observation.fidelity.steps)
        self._checkpoints[key] = max(self._checkpoints.get(key, 0), self._checkpoint(observation))
        score = observation.score if observation.score is not None else math.nan
        failed = cause in _BROKEN or not math.isfinite(score)
        if not failed:
            self.scored.append((observation, score if self.problem.direction == "maximize" else -score))
        elif cause is not Cause.CANCELLED_BY_OTHER:
            self.broken.append(observation)
            self._closed.add(key)
        if cause.stopped:
            self._closed.add(key)

    def steps(self, identity: str, model: str) -> int:
        """Global steps that a new trial of the configuration would resume from."""
        return self._checkpoints.get((identity, model), 0)

    def closed(self, identity: str, model: str) -> bool:
        """Whether the configuration was stopped or failed on the model by its own doing."""
        return (identity, model) in self._closed

    def open(self, identity: str, fidelity: Fidelity, pending: Sequence[Pending] = ()) -> bool:
        """Whether a trial there is allowed: not stopped or failed, beyond what was observed, none in flight."""
        key = (identity, fidelity.model)
        in_flight = any((p.config_id, p.fidelity.model) == key for p in pending)
        return key not in self._closed and not in_flight and fidelity.steps > self._seen.get(key, 0)

    @property
    def trials(self) -> int:
        """Search trials told, those lost to the infrastructure included."""
        return len(self._trials)

    def exhausted(self, pending: Sequence[Pending]) -> bool:
        """Whether told and pending trials have used up ``max_trials``."""
        limit = self.problem.max_trials
        return limit is not None and self.trials + len(pending) >= limit

    def _checkpoint(self, observation: Observation) -> int:
        if observation.cause is Cause.COMPLETED:
            return observation.fidelity.steps
        return checkpoint_at(observation.fidelity.steps, self.problem.save_every)


class TargetSearch:
    """Common part of the methods that train the target at full budget only."""

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.history = History(problem)

    def tell(self, observation: Observation) -> None:
        self.history.add(observation)

    def best(self) -> Config:
        """Highest score at the highest rung reached: a trial that was stopped early loses to all that went on.

        One above the KL's ceiling loses to all below it.
        """
        ranked = [((self._allowed(o), self._rung(o), value, -o.trial), o) for o, value in self.history.scored]
        return max(ranked, key=lambda entry: entry[0])[1].config if ranked else self.problem.recipe

    def describe(self) -> Mapping[str, Scalar]:
        return {"observations": len(self.history.scored), "failures": len(self.history.broken)}

    def _allowed(self, observation: Observation) -> bool:
        ceiling = self.problem.kl_ceiling
        return ceiling is None or observation.kl is None or observation.kl <= ceiling

    def _rung(self, observation: Observation) -> int:
        return bisect_right(self.problem.rungs, observation.fidelity.steps)
