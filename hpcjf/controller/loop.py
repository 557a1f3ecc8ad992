"""The controller: an idempotent tick (poll, observe, decide, act) over a journal. It can die at any line."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path

from hpcjf.cluster.base import Cluster, JobClass, JobStatus
from hpcjf.controller.answer import Answer
from hpcjf.controller.endings import as_of_rule, from_result, from_scheduler, measured, retry
from hpcjf.controller.jobs import MAX_BACKOFF, Submitter
from hpcjf.controller.planning import Planner
from hpcjf.controller.watch import Rows, TraceWatch
from hpcjf.core.lifecycle import Attempt, Ending, Phase, StudyState
from hpcjf.errors import HpcjfError, PermanentClusterError, StoreError, TransientClusterError
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult, StopOrder, StopRequest
from hpcjf.store.registry import Registry
from hpcjf.study import Study
from hpcjf.types import Cause, Purpose, Trial


class Controller:
    """One generation of a study's controller. The caller holds the run directory's lock."""

    def __init__(
        self,
        layout: RunLayout,
        study: Study,
        cluster: Cluster,
        journal: JournalWriter,
        state: StudyState,
        ask: Callable[[int], Answer],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.layout, self.study, self.state = layout, study, state
        self._cluster, self._journal, self._clock = cluster, journal, clock
        self.watch = TraceWatch(layout, study.stopping)
        self._jobs = Submitter(layout, study, cluster, self.emit)
        self._planner = Planner(study, ask, self.emit)
        self._statuses: dict[str, JobStatus] = {}
        self._over_since: dict[str, tuple[float, int]] = {}
        self._cancelled: dict[str, float] = {}
        self._next_query, self._pause, self._answered = 0.0, 0.0, 0.0
        self._jobs.recover(state)

    @property
    def over(self) -> bool:
        """Nothing more to do: done, or stopped with no job left."""
        return self.state.phase in (Phase.DONE, Phase.STOPPED) and not any(self.state.live())

    @property
    def interval(self) -> float:
        """Seconds between two ticks."""
        return min(self.study.cluster.trace_seconds, self.study.cluster.poll_seconds)

    def emit(self, kind: str, **fields: object) -> None:
        """Journal an event, then take it in."""
        event = {"kind": kind, "time": self._clock(), **fields}
        self._journal.append(event)
        self.state.apply(event)

    def tick(self) -> None:
        """One round. Raises PermanentClusterError where the site refuses a job for good."""
        now = self._clock()
        self._query(now)
        for trial, attempt in list(self.state.live()):
            self._observe(trial, attempt, now)
        self._obey_stop(now)
        self._decide(now)
        self._act(now)

    def _query(self, now: float) -> None:
        """One scheduler query for all jobs. A failed one changes nothing and makes the next one later."""
        jobs = [attempt.job_id for _, attempt in self.state.live() if attempt.job_id]
        if not jobs or now < self._next_query:
            return
        base = self.study.cluster.poll_seconds if self._cluster.slots is None else 0.0
        try:
            answer = self._cluster.poll(jobs)
            self._statuses = {job: answer.get(job, JobStatus(job, JobClass.UNKNOWN, "")) for job in jobs}
            self._pause, self._answered = base, now
        except TransientClusterError as error:
            self._pause = min(MAX_BACKOFF, max(base, 1.0, 2 * self._pause))
            self.emit("note", text=f"scheduler silent, next try in {self._pause:.0f} s: {error}")
        self._next_query = now + self._pause * random.uniform(0.9, 1.1)

    def _observe(self, trial: Trial, attempt: Attempt, now: float) -> None:
        rows = self._rows(attempt)
        status = self._statuses.get(attempt.job_id or "")
        running = rows is not None or (status is not None and status.job_class is JobClass.RUNNING)
        if attempt.started is None and running:
            self.emit("started", trial=trial.number, attempt=attempt.number)
        if attempt.stop is None and status is not None and status.job_class is JobClass.HELD:
            self._note_once(f"{attempt.name} is held ({status.reason}): scontrol release {status.job_id}")
        ending = self._ending(attempt, status, 0 if rows is None else len(rows), now)
        if ending is not None:
            self._end(trial, attempt, ending)

    def _rows(self, attempt: Attempt) -> Rows | None:
        """A trace that cannot be read is as good as none: the scheduler and the result file still tell the end."""
        try:
            return self.watch.read(attempt)
        except StoreError as error:
            self._note_once(str(error))
            return None

    def _ending(self, attempt: Attempt, status: JobStatus | None, rows: int, now: float) -> Ending | None:
        gone = status is not None and not status.job_class.active and status.job_class is not JobClass.HELD
        result = self._result(attempt)
        if result is not None and (gone or attempt.stop or not result.cause.infrastructure):
            return from_result(attempt, result, status, now)
        if status is None or not gone:
            self._over_since.pop(attempt.name, None)
            return None
        if not self._over_for_good(attempt, status, rows, now):
            return None
        # the job may have written it between our look at the file and its end
        result = self._result(attempt)
        if result is not None:
            return from_result(attempt, result, status, now)
        return from_scheduler(attempt, status, self._rows(attempt), now)

    def _over_for_good(self, attempt: Attempt, status: JobStatus, rows: int, now: float) -> bool:
        """Whether the time of grace is over. A job that the scheduler does not know lives while its trace grows."""
        since, before = self._over_since.setdefault(attempt.name, (now, rows))
        patience = self.study.cluster.missing_seconds
        if status.job_class is not JobClass.UNKNOWN:
            return self._cluster.slots is not None or now - since >= patience
        if rows != before:
            self._over_since[attempt.name] = (now, rows)
            return False
        return self._answered - since >= patience  # silence of the scheduler proves nothing

    def _result(self, attempt: Attempt) -> AttemptResult | None:
        path = self.layout.attempt(attempt.trial, attempt.number).result
        if not path.exists():
            return None
        try:
            result = AttemptResult.read(path)
        except StoreError as error:
            self._note_once(str(error))
            return None
        return result if result.name == attempt.name else None

    def _end(self, trial: Trial, attempt: Attempt, ending: Ending) -> None:
        ending = self._by_the_trace(trial, attempt, ending)
        again = retry(self.state.trials[trial.number].attempts, ending.cause, self.study.cluster.retries)
        self.emit(
            "ended",
            trial=trial.number,
            attempt=attempt.number,
            cause=ending.cause,
            step=ending.step,
            start_step=ending.start_step,
            score=ending.score,
            seconds=ending.seconds,
            startup_seconds=ending.startup_seconds,
            detail=ending.detail,
            kl=ending.kl,
            tokens=ending.tokens,
            late_score=ending.late_score,
            retry=again,
        )
        self.watch.forget(attempt)
        if ending.cause is Cause.CANCELLED_BY_OTHER:
            self._note_once(f"{attempt.name} was cancelled by somebody else; its trial is not tried again")
        if self.study.checkpoints.max_gb is not None:
            Registry(self.layout.registry).collect_budget(int(self.study.checkpoints.max_gb * 1e9), self._needed())

    def _by_the_trace(self, trial: Trial, attempt: Attempt, ending: Ending) -> Ending:
        """The ending with what the whole training's rows say, which are all there once its job has ended."""
        self._rows(attempt)
        rows = self.watch.whole(attempt, self.state.before(trial, attempt))
        rows = None if rows is None else rows[rows["step"] <= ending.step]
        if rows is None or not len(rows):
            return ending
        if self.study.search.deterministic and trial.purpose is Purpose.SEARCH:
            ending = as_of_rule(ending, rows, self.study.stopping)
        return measured(ending, rows)

    def _needed(self) -> set[Path]:
        """Registry entries of trials that go on, in a job or in their next attempt, and of the best configuration."""
        best = self.state.incumbents[-1].config_id if self.state.incumbents else None
        trials = [t.trial for t in self.state.trials.values() if t.cause is None or t.trial.config_id == best]
        return {self.layout.entry(t.config_id, t.fidelity.model, t.training_seed) for t in trials}

    def _obey_stop(self, now: float) -> None:
        request = stop_request(self.layout)
        if request is None:
            return
        if request.now:
            for trial, attempt in self.state.live():
                if attempt.job_id and attempt.stop is None:
                    self._order(trial, attempt, Cause.CANCELLED, "hpcjf stop --now")
            self._cancel([attempt for _, attempt in self.state.live() if not attempt.started], now)
        if self.state.phase not in (Phase.DONE, Phase.STOPPED):
            self.emit("phase", phase=Phase.STOPPED, reason="hpcjf stop" + (" --now" if request.now else ""))

    def _decide(self, now: float) -> None:
        if self.state.phase in (Phase.DONE, Phase.STOPPED):
            return
        for trial, attempt in list(self.state.live()):
            verdict = self.watch.verdict(trial, attempt, self.state.before(trial, attempt))
            if verdict is not None:
                self._order(trial, attempt, verdict.cause, verdict.why)
        free = self._limit() - len(self.state.open_trials())
        self._planner.plan(self.state, free)

    def _limit(self) -> int:
        slots = self._cluster.slots
        return self.study.search.parallel if slots is None else min(slots, self.study.search.parallel)

    def _order(self, trial: Trial, attempt: Attempt, cause: Cause, why: str) -> None:
        StopOrder(cause=cause, why=why).write(self.layout.attempt(trial.number, attempt.number).stop)
        self.emit("stopping", trial=trial.number, attempt=attempt.number, cause=cause, why=why)

    def _act(self, now: float) -> None:
        patience = self.study.cluster.stop_seconds
        self._cancel([a for _, a in self.state.live() if a.stop_time and now - a.stop_time > patience], now)
        if self.state.phase in (Phase.DONE, Phase.STOPPED):
            for trial, attempt in self._jobs.withdraw(self.state, now):
                self._end(trial, attempt, Ending(Cause.CANCELLED, now, 0, 0, None, 0.0, 0.0, "never submitted"))
            return
        idle = [state for state in self.state.open_trials() if state.live is None]
        for state in idle[: max(0, self._limit() - sum(1 for _ in self.state.live()))]:
            self._jobs.intend(state.trial, self.state)
        try:
            self._jobs.submit_all(self.state, now)
        except PermanentClusterError as error:
            self.emit("phase", phase=Phase.STOPPED, reason=f"the scheduler refused a job: {error}")
            raise

    def _cancel(self, attempts: list[Attempt], now: float) -> None:
        """Cancel the jobs of these attempts, again only after another ``stop_seconds``."""
        patience = self.study.cluster.stop_seconds
        due = [a for a in attempts if a.job_id and now - self._cancelled.get(a.name, -math.inf) > patience]
        if not due:
            return
        try:
            self._cluster.cancel([attempt.job_id for attempt in due if attempt.job_id])
            self._cancelled.update((attempt.name, now) for attempt in due)
        except HpcjfError as error:
            self._note_once(f"cancel failed: {error}")

    def _note_once(self, text: str) -> None:
        if all(known != text for _, known in self.state.notes):
            self.emit("note", text=text)


def stop_request(layout: RunLayout) -> StopRequest | None:
    """What ``hpcjf stop`` asked for, if anything."""
    return StopRequest.read(layout.stop_request) if layout.stop_request.exists() else None
