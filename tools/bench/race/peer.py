"""The peers in the race: each a script under an interpreter of its own, asked and told over lines of JSON.

A peer's job goes on from the checkpoint of an earlier job of the same configuration and model, as ours do, and a job
whose node failed is run again without the peer's knowing. Scores are to be maximised.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hpcjf.core.identity import config_id
from hpcjf.core.space import Space
from hpcjf.types import Cause, Config
from race.outcome import Outcome, Recorder
from race.pool import Job, Pool, Site, Training
from race.problem import Problem

Way = Literal["target", "proxy"]
"""All jobs on the target, or all on the proxy, whose best configurations are then trained on the target."""
PROMOTED = 3
"""How many of them."""
ETA = 3
"""Ratio between neighbouring rungs of every problem."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's script, its interpreter, and the variant of it that is raced."""

    name: str
    python: Path
    script: Path
    variant: str


class PeerError(RuntimeError):
    """A peer that ended early or broke the protocol."""


class PeerProcess:
    """The conversation with a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._process = subprocess.Popen(
            [peer.python, peer.script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )

    def request(self, operation: str, **fields: Any) -> dict[str, Any]:
        """One question and its answer.

        :raises PeerError: the peer has ended, or answers with something else than an object.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"op": operation, **fields}), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise PeerError(f"{self._peer.name} has ended with {self._process.wait()}") from error
        line = self._process.stdout.readline()
        if not line.startswith("{"):
            raise PeerError(f"{self._peer.name} answers {operation} with {line!r}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def cpu(self) -> float:
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(slots=True)
class _Task:
    """A job as the peer knows it, over all its attempts."""

    key: Any
    config: Config
    job: Job
    spent: float = 0.0
    reported: int = 0


class _Race:
    """One race of one peer."""

    def __init__(self, process: PeerProcess, pool: Pool, way: Way) -> None:
        self._process, self._pool = process, pool
        self.recorder, self.asks = Recorder(pool), 0
        self._model = pool.problem.models[0 if way == "proxy" else -1].name
        self._returned = PROMOTED if way == "proxy" else 1
        self._space = Space(pool.problem.space)
        self._tasks: list[_Task] = []
        self._scores: dict[str, tuple[int, float, Config]] = {}
        self._done = False

    def run(self, reports: bool, budget: float) -> None:
        """Up to the moment at which ``budget`` is spent, or the peer has no more to ask."""
        self._ask()
        while self._tasks and self._pool.jump(budget):
            ended = [task for task in self._tasks if task.job.end <= self._pool.now]
            if reports:
                for task in self._tasks:
                    self._report(task)
            for task in ended:
                self._end(task)
            if ended:
                self._ask()

    def _ask(self) -> None:
        while not self._done and len(self._tasks) < self._pool.site.workers:
            answer = self._process.request("ask")
            if answer.get("wait"):
                break
            self._done = bool(answer.get("done"))
            if not self._done:
                self._submit(answer)
        if not self._tasks and not self._done:
            raise PeerError("the peer waits although none of its jobs is running")

    def _submit(self, answer: Mapping[str, Any]) -> None:
        config, steps, rungs = self._space.canonical(answer["config"]), answer["steps"], self._pool.problem.rungs
        if not self._space.contains(config) or not 1 <= steps <= rungs[-1]:
            raise PeerError(f"{config} for {steps} steps lies outside the problem")
        training = Training(config_id(config), self._model)
        job = self._pool.submit(training, config, steps, tuple(rung for rung in rungs if rung < steps))
        self._tasks.append(_Task(answer["job"], config, job))
        self.asks += 1

    def _report(self, task: _Task) -> None:
        step = task.job.step(self._pool.now)
        if step in task.job.looks and step > max(task.reported, task.job.start_step):
            task.reported, score = step, task.job.score(step)
            if score is not None and self._process.request("report", job=task.key, steps=step, score=score)["stop"]:
                task.job.stop(self._pool.now, Cause.CANCELLED)

    def _end(self, task: _Task) -> None:
        job = task.job
        task.spent += job.end - job.started
        if job.cause is Cause.NODE_FAILURE:
            task.job = self._pool.submit(job.training, job.config, job.goal, job.looks)
            return
        self._tasks.remove(task)
        step = job.step(job.end)
        score = job.score(step) if job.cause is not Cause.DIVERGED else None
        self._process.request("tell", job=task.key, steps=step, score=score, cost=task.spent)
        if score is not None:
            seen = (step, score, task.config)
            identity = job.training.config_id
            self._scores[identity] = max(self._scores.get(identity, seen), seen, key=_rank)
            leaders = sorted(self._scores.values(), key=_rank, reverse=True)
            self.recorder.recommend([config for _, _, config in leaders[: self._returned]])


def _rank(seen: tuple[int, float, Config]) -> tuple[int, float]:
    """The budget decides, then the score at it."""
    return seen[:2]


def run_peer(problem: Problem, peer: Peer, seed: int, budget: float, site: Site, way: Way) -> Outcome:
    """Race a peer up to ``budget`` seconds of all workers together."""
    race_name = peer.name if way == "target" else f"{peer.name} on the proxy"
    pool = Pool(problem, seed, site)
    with PeerProcess(peer) as process:
        started = process.request(
            "start",
            variant=peer.variant,
            space={name: dimension.model_dump(exclude_none=True) for name, dimension in problem.space.items()},
            recipe=dict(problem.recipe),
            rungs=list(problem.rungs),
            eta=ETA,
            seed=seed,
            workers=site.workers,
        )
        race, before = _Race(process, pool, way), process.cpu
        race.run(bool(started["reports"]), budget)
        cpu = process.cpu - before
    return race.recorder.outcome(race_name, budget, asks=race.asks, ask_cpu=cpu)
