"""Submission that can be repeated: the intent stands in the journal before sbatch, the job id after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpcjf.cluster.base import Cluster, JobRequest
from hpcjf.core.lifecycle import Attempt, StudyState
from hpcjf.errors import HpcjfError, LimitClusterError, TransientClusterError
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptSpec
from hpcjf.study import Resources, Study
from hpcjf.types import Trial

Emit = Callable[..., None]
MAX_BACKOFF = 600.0
"""Seconds; the longest pause between two tries at a scheduler that refuses or is silent."""


class Submitter:
    """Brings intended attempts to the scheduler, one by one, with growing pauses after a refusal."""

    def __init__(self, layout: RunLayout, study: Study, cluster: Cluster, emit: Emit) -> None:
        self._layout, self._study, self._cluster, self._emit = layout, study, cluster, emit
        self._unsure: set[str] = set()
        self._pause, self._resume_at = 0.0, 0.0

    def intend(self, trial: Trial, state: StudyState) -> Attempt:
        """Journal a new attempt and write its spec."""
        number = max((attempt.number for attempt in state.trials[trial.number].attempts), default=0) + 1
        name = f"hpcjf-{state.run_id}-t{trial.number:04d}-a{number:02d}"
        self._emit("attempt", trial=trial.number, attempt=number, name=name)
        return state.trials[trial.number].attempts[-1]

    def recover(self, state: StudyState) -> None:
        """After a restart: an intent without a job id may or may not have reached the scheduler."""
        self._unsure.update(attempt.name for _, attempt in state.live() if attempt.job_id is None)

    def submit_all(self, state: StudyState, now: float) -> None:
        """Submit every intended attempt. Permanent refusals are raised; others are tried again later."""
        for trial, attempt in list(state.live()):
            if attempt.job_id is not None or now < self._resume_at:
                continue
            try:
                self._submit(trial, attempt, state.generation)
                self._pause = 0.0
            except (TransientClusterError, LimitClusterError) as error:
                if self._cluster.slots is not None:
                    return  # a process of ours is still on its way out
                self._unsure.add(attempt.name)
                self._wait(now, error)

    def withdraw(self, state: StudyState, now: float) -> list[tuple[Trial, Attempt]]:
        """Intended attempts that the scheduler surely has not got; one that it has got after all is journaled."""
        absent = []
        for trial, attempt in list(state.live()):
            if attempt.job_id is not None or (attempt.name in self._unsure and now < self._resume_at):
                continue
            try:
                job_id = self._known(attempt)
            except TransientClusterError as error:
                self._wait(now, error)
                continue
            if job_id is None:
                absent.append((trial, attempt))
            else:
                self._submitted(attempt, job_id)
        return absent

    def _wait(self, now: float, error: HpcjfError) -> None:
        self._pause = min(MAX_BACKOFF, max(self._study.cluster.poll_seconds, 2 * self._pause))
        self._resume_at = now + self._pause
        self._emit("note", text=f"submission waits {self._pause:.0f} s: {error}")

    def _submit(self, trial: Trial, attempt: Attempt, generation: int) -> None:
        job_id = self._known(attempt) or self._cluster.submit(self._request(trial, attempt, generation))
        self._submitted(attempt, job_id)

    def _known(self, attempt: Attempt) -> str | None:
        return self._cluster.find(attempt.name) if attempt.name in self._unsure else None

    def _submitted(self, attempt: Attempt, job_id: str) -> None:
        self._unsure.discard(attempt.name)
        self._emit("submitted", trial=attempt.trial, attempt=attempt.number, job_id=job_id)

    def _request(self, trial: Trial, attempt: Attempt, generation: int) -> JobRequest:
        paths = self._layout.attempt(trial.number, attempt.number)
        paths.create()
        fields: dict[str, Any] = {"config": dict(trial.config), "config_id": trial.config_id}
        spec = AttemptSpec(
            name=attempt.name,
            generation=generation,
            trial=trial.number,
            attempt=attempt.number,
            model=trial.fidelity.model,
            steps=trial.fidelity.steps,
            training_seed=trial.training_seed,
            purpose=trial.purpose,
            **fields,
        )
        spec.write(paths.spec)
        model = self._study.model(trial.fidelity.model)
        return JobRequest(
            name=attempt.name,
            folder=paths.job_folder,
            entry="hpcjf.worker.entry:run_attempt",
            argument=str(paths.spec),
            resources=_not_requeued(model.resources.over(self._study.cluster)),
            signal_seconds=self._study.cluster.signal_seconds,
        )


def _not_requeued(resources: Resources) -> Resources:
    """A preempted trial is resumed by us, in a new attempt with files of its own, not by the scheduler in the old."""
    extra = {"no-requeue": "", **(resources.extra_directives or {})}
    return resources.model_copy(update={"extra_directives": extra})
