"""Keys and values that every layer shares: frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Scalar = float | int | str | bool
Config = Mapping[str, Scalar]


class Purpose(StrEnum):
    """Why a trial exists."""

    SEARCH = "search"
    FINAL = "final"
    RECIPE = "recipe"


class Cause(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    STOPPED_KL = "stopped_kl"
    STOPPED_REWARD = "stopped_reward"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    LAUNCH_FAILURE = "launch_failure"
    LOST = "lost"
    CANCELLED = "cancelled"
    CANCELLED_BY_OTHER = "cancelled_by_other"

    @property
    def infrastructure(self) -> bool:
        """The cluster's doing, not the configuration's: retried, never shown to the surrogate."""
        return self in _INFRASTRUCTURE

    @property
    def stopped(self) -> bool:
        """Ended early by one of our stopping rules."""
        return self in (Cause.STOPPED_KL, Cause.STOPPED_REWARD)


_INFRASTRUCTURE = frozenset(
    {Cause.TIMED_OUT, Cause.PREEMPTED, Cause.NODE_FAILURE, Cause.LAUNCH_FAILURE, Cause.LOST, Cause.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """A model of the study and a training budget in global steps."""

    model: str
    steps: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a searcher asks for: a configuration at a fidelity, and the figures that led to it."""

    config: Config
    fidelity: Fidelity
    why: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal that was given a number. ``config_id`` is the hash of the canonical configuration."""

    number: int
    config_id: str
    config: Config
    fidelity: Fidelity
    training_seed: int
    purpose: Purpose
    why: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a trial showed.

    ``fidelity.steps`` is the step reached, ``score`` the validation score there (None where none was
    measured), ``start_step`` the checkpoint it went on from, ``seconds`` the training wall time of steps
    ``start_step`` → ``fidelity.steps`` without start-up, ``startup_seconds`` the rest of the job's wall time.
    ``kl`` is the KL to the reference at the end, nats per token, None where none was measured.
    ``late_score`` is the mean of the validation scores in the last three tenths of the steps, which is less noisy than
    ``score``. ``why`` are the figures of the proposal, by which a method knows its trial again.
    """

    trial: int
    config_id: str
    config: Config
    fidelity: Fidelity
    score: float | None
    cause: Cause
    start_step: int
    seconds: float
    startup_seconds: float
    kl: float | None = None
    late_score: float | None = None
    why: Mapping[str, Scalar] = field(default_factory=dict)
