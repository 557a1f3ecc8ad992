"""The state of a study as a pure function of its journal: ``replay(events)``.

Every change is one event, a dict with ``kind`` and ``time`` (unix seconds). Kinds, and who they concern:
study, controller, trial, attempt (the intent to submit), submitted, started, stopping, ended, incumbent, phase, note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hpcjf.types import Cause, Config, Fidelity, Observation, Purpose, Scalar, Trial

Event = Mapping[str, Any]


class Phase(StrEnum):
    """Where a study stands. ``stopped`` can be resumed, ``done`` is the end."""

    SEARCH = "search"
    FINAL = "final"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(slots=True)
class Ending:
    """How an attempt ended: step reached, validation score there, wall seconds of training and of the rest.

    ``kl``, ``tokens`` and ``late_score`` are of the trace: KL at the end, nats per token, mean completion tokens of a
    step, and the mean validation score of the last part.
    """

    cause: Cause
    time: float
    step: int
    start_step: int
    score: float | None
    seconds: float
    startup_seconds: float
    detail: str = ""
    kl: float | None = None
    tokens: float | None = None
    late_score: float | None = None


@dataclass(slots=True)
class Attempt:
    """One job of a trial."""

    trial: int
    number: int
    name: str
    intended: float
    job_id: str | None = None
    submitted: float | None = None
    started: float | None = None
    stop: Cause | None = None
    stop_time: float | None = None
    stop_why: str = ""
    ending: Ending | None = None


@dataclass(slots=True)
class TrialState:
    """A trial, its attempts, and its cause once it is over."""

    trial: Trial
    time: float
    attempts: list[Attempt] = field(default_factory=list)
    cause: Cause | None = None

    @property
    def live(self) -> Attempt | None:
        """The attempt that has not ended, if any."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].ending is None else None

    def observation(self) -> Observation | None:
        """All attempts as one observation, once the trial is over; seconds are summed over attempts."""
        endings = [attempt.ending for attempt in self.attempts if attempt.ending]
        if self.cause is None or not endings:
            return None
        return Observation(
            trial=self.trial.number,
            config_id=self.trial.config_id,
            config=self.trial.config,
            fidelity=Fidelity(self.trial.fidelity.model, endings[-1].step),
            score=endings[-1].score,
            cause=self.cause,
            # an attempt that died before its first step does not know where it would have started
            start_step=next((e.start_step for e in endings if e.step > e.start_step), endings[-1].start_step),
            seconds=sum(ending.seconds for ending in endings),
            startup_seconds=sum(ending.startup_seconds for ending in endings),
            kl=endings[-1].kl,
            late_score=endings[-1].late_score,
            why=self.trial.why,
        )

    def in_work(self, size: float) -> Observation | None:
        """The observation with costs that no clock had a hand in: for seconds the steps, each of ``size`` times its
        completion tokens, and nothing for the start-up.
        """
        seen = self.observation()
        if seen is None:
            return None
        tokens = next((a.ending.tokens for a in reversed(self.attempts) if a.ending), None) or 0.0
        steps = max(0, seen.fidelity.steps - seen.start_step)
        return replace(seen, seconds=steps * tokens * size, startup_seconds=0.0)


@dataclass(slots=True)
class Incumbent:
    """The configuration that would be returned if the search ended at ``time``."""

    time: float
    config_id: str
    config: Config
    score: float | None


@dataclass(slots=True)
class StudyState:
    """Everything the journal says. Change it through ``apply`` only."""

    run_id: str = ""
    generation: int = 0
    phase: Phase = Phase.SEARCH
    phase_reason: str = ""
    trials: dict[int, TrialState] = field(default_factory=dict)
    over: list[int] = field(default_factory=list)
    """Numbers of the trials that are over, in the order in which they ended."""
    incumbents: list[Incumbent] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    controller: dict[str, Scalar] = field(default_factory=dict)
    active_seconds: float = 0.0
    """Wall seconds during which a controller was at work, up to ``last_time``."""
    last_time: float | None = None

    def apply(self, event: Event) -> None:
        """Take one event in. Unknown kinds are ignored, so that an older program reads a newer journal.

        So are, with a note, events about a trial or attempt whose own record was damaged and set aside.
        """
        time = float(event["time"])
        if event["kind"] != "controller" and self.last_time is not None:
            self.active_seconds += max(0.0, time - self.last_time)
        self.last_time = time
        handler = _HANDLERS.get(event["kind"])
        try:
            if handler:
                handler(self, event)
        except LookupError:
            if "trial" not in event:
                raise
            self.notes.append((time, f"{event['kind']} skipped: no record of trial {event['trial']}'s attempt"))

    def attempt(self, event: Event) -> Attempt:
        attempts: list[Attempt] = self.trials[event["trial"]].attempts
        return {attempt.number: attempt for attempt in attempts}[event["attempt"]]

    @property
    def next_number(self) -> int:
        """Of the next trial; higher than all known, of which a damaged journal may have lost some."""
        return max(self.trials, default=-1) + 1

    def live(self) -> Iterator[tuple[Trial, Attempt]]:
        """Attempts that were intended and have not ended."""
        for state in self.trials.values():
            if state.live:
                yield state.trial, state.live

    def before(self, trial: Trial, attempt: Attempt) -> list[Attempt]:
        """Earlier attempts of the same configuration, model and training seed: those it may have gone on from."""
        key = (trial.config_id, trial.fidelity.model, trial.training_seed)
        same = (
            known
            for known in self.trials.values()
            if (known.trial.config_id, known.trial.fidelity.model, known.trial.training_seed) == key
        )
        earlier = (a for known in same for a in known.attempts if (a.trial, a.number) < (attempt.trial, attempt.number))
        return [a for a in earlier if a.ending]

    def open_trials(self) -> list[TrialState]:
        """Trials that are not over, with or without a live attempt."""
        return [state for state in self.trials.values() if state.cause is None]

    def of(self, *purposes: Purpose) -> list[TrialState]:
        return [state for state in self.trials.values() if state.trial.purpose in purposes]

    def job_seconds(self) -> float:
        """Wall seconds of ended search jobs, start-up included."""
        endings = (a.ending for state in self.of(Purpose.SEARCH) for a in state.attempts if a.ending)
        return sum(ending.seconds + ending.startup_seconds for ending in endings)


def replay(events: Iterable[Event]) -> StudyState:
    """The state after ``events``."""
    state = StudyState()
    for event in events:
        state.apply(event)
    return state


def _study(state: StudyState, event: Event) -> None:
    state.run_id = event["run_id"]


def _controller(state: StudyState, event: Event) -> None:
    state.generation = event["generation"]
    state.controller = {k: v for k, v in event.items() if k not in ("kind", "generation")}


def _trial(state: StudyState, event: Event) -> None:
    trial = Trial(
        number=event["number"],
        config_id=event["config_id"],
        config=event["config"],
        fidelity=Fidelity(event["model"], event["steps"]),
        training_seed=event["training_seed"],
        purpose=Purpose(event["purpose"]),
        why=event["why"],
    )
    state.trials[trial.number] = TrialState(trial, event["time"])


def _attempt(state: StudyState, event: Event) -> None:
    attempts = state.trials[event["trial"]].attempts
    attempts.append(Attempt(event["trial"], event["attempt"], event["name"], event["time"]))


def _submitted(state: StudyState, event: Event) -> None:
    attempt = state.attempt(event)
    attempt.job_id, attempt.submitted = event["job_id"], event["time"]


def _started(state: StudyState, event: Event) -> None:
    state.attempt(event).started = event["time"]


def _stopping(state: StudyState, event: Event) -> None:
    attempt = state.attempt(event)
    attempt.stop, attempt.stop_time, attempt.stop_why = Cause(event["cause"]), event["time"], event["why"]


def _ended(state: StudyState, event: Event) -> None:
    cause = Cause(event["cause"])
    state.attempt(event).ending = Ending(
        cause=cause,
        time=event["time"],
        step=event["step"],
        start_step=event["start_step"],
        score=event["score"],
        seconds=event["seconds"],
        startup_seconds=event["startup_seconds"],
        detail=event["detail"],
        kl=event.get("kl"),
        late_score=event.get("late_score"),
        tokens=event.get("tokens"),
    )
    if not event["retry"]:
        state.trials[event["trial"]].cause = cause
        state.over.append(event["trial"])


def _incumbent(state: StudyState, event: Event) -> None:
    state.incumbents.append(Incumbent(event["time"], event["config_id"], event["config"], event["score"]))


def _phase(state: StudyState, event: Event) -> None:
    state.phase, state.phase_reason = Phase(event["phase"]), event["reason"]


def _note(state: StudyState, event: Event) -> None:
    state.notes.append((event["time"], event["text"]))


_HANDLERS = {
    "study": _study,
    "controller": _controller,
    "trial": _trial,
    "attempt": _attempt,
    "submitted": _submitted,
    "started": _started,
    "stopping": _stopping,
    "ended": _ended,
    "incumbent": _incumbent,
    "phase": _phase,
    "note": _note,
}
