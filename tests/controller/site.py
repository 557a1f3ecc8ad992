"""A scheduler in memory that does what a test says, and a controller on it whose clock stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpcjf.cluster.base import JobClass, JobRequest, JobStatus
from hpcjf.controller.answer import Answer
from hpcjf.controller.loop import Controller
from hpcjf.core.lifecycle import Attempt, replay
from hpcjf.errors import ClusterError
from hpcjf.store.journal import JournalWriter, read_journal
from hpcjf.store.layout import AttemptPaths, RunLayout
from hpcjf.store.messages import StopRequest
from hpcjf.study import Study
from hpcjf.types import Config, Fidelity, Proposal

RECIPE: Config = {"learning_rate": 1e-4, "rollouts": 5}


class Site:
    """Jobs by id. ``fault`` is raised by every call while it is set; ``lost_answer`` takes a job and then raises."""

    name = "site"

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots
        self.jobs: dict[str, JobStatus] = {}
        self.cancelled: list[str] = []
        self.fault: ClusterError | None = None
        self.lost_answer: ClusterError | None = None

    def submit(self, request: JobRequest) -> str:
        self._answer()
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = JobStatus(job_id, JobClass.PENDING, "PENDING", name=request.name)
        if self.lost_answer:
            raise self.lost_answer
        return job_id

    def find(self, job_name: str) -> str | None:
        self._answer()
        return next((job.job_id for job in self.jobs.values() if job.name == job_name), None)

    def poll(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        self._answer()
        return {job_id: self.jobs[job_id] for job_id in job_ids if job_id in self.jobs}

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._answer()
        self.cancelled += job_ids
        for job_id in job_ids:
            self.become(job_id, JobClass.CANCELLED, "CANCELLED by 0")

    def check(self, resources: object) -> None:
        self._answer()

    def become(self, job_id: str, job_class: JobClass, state: str = "") -> None:
        self.jobs[job_id] = JobStatus(job_id, job_class, state or job_class.name, name=self.jobs[job_id].name)

    def forget(self, job_id: str) -> None:
        del self.jobs[job_id]

    def _answer(self) -> None:
        if self.fault:
            raise self.fault


class Bench:
    """A run directory, its site, and one controller after the other over the same journal."""

    def __init__(self, root: Path, slots: int | None = None, **sections: dict[str, Any]) -> None:
        self.layout, self.site, self.now = RunLayout(root), Site(slots), 1000.0
        self.layout.create()
        self.study = Study.model_validate(
            {
                "study": {"training_seeds": 1},
                "models": [{"name": "s", "path": "s"}],
                "recipe": dict(RECIPE),
                "budget": {"min": 10, "max": 10},
                "search": {"max_trials": 2, "parallel": 2},
                "cluster": {"missing_seconds": 120},
                **sections,
            }
        )
        self.ask: Callable[[int], Answer] = self.propose
        self.journal: JournalWriter | None = None
        self.restart()

    def restart(self) -> None:
        """As after kill -9: a new controller that knows the journal only."""
        self.close()
        self.journal = JournalWriter(self.layout.journal)
        state = replay(read_journal(self.layout.journal)[0])
        self.controller = Controller(
            self.layout, self.study, self.site, self.journal, state, lambda n: self.ask(n), lambda: self.now
        )

    def propose(self, count: int) -> Answer:
        first = len(self.controller.state.trials)
        configs = [{**RECIPE, "learning_rate": 1e-4 * (first + k + 2)} for k in range(count)]
        return Answer(tuple(Proposal(config, Fidelity("s", 10)) for config in configs), RECIPE)

    def close(self) -> None:
        """As after the controller's death: the journal has no writer."""
        if self.journal:
            self.journal.close()

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.controller.tick()

    def stop(self, *, now: bool) -> None:
        StopRequest(now=now).write(self.layout.stop_request)

    def live(self) -> list[Attempt]:
        return [attempt for _, attempt in self.controller.state.live()]

    def paths(self, attempt: Attempt) -> AttemptPaths:
        return self.layout.attempt(attempt.trial, attempt.number)

    @property
    def notes(self) -> str:
        return "\n".join(text for _, text in self.controller.state.notes)
