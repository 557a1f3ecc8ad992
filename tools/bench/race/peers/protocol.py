"""The side of a peer in the race: one JSON object a line in, one out. Only the standard library is used here.

start   variant, space, recipe, rungs, eta, seed, workers   -> version, reports
ask                                                         -> job, config, steps; or done: true
report  job, steps, score                                   -> stop       (only where start said reports: true)
tell    job, steps, score (null: failed), cost              -> {}

Scores are to be maximised. ``report`` is sent when a running job passes a rung, ``tell`` once when it has ended. The
protocol also lets a peer answer ``wait: true``; none of the libraries ever needs a result before it can go on.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]


@dataclass(frozen=True)
class Dimension:
    """A dimension of the space. Inside a library a choice is the text of its index, whatever its own type is."""

    type: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: Sequence[Any] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The choices as the library sees them."""
        return tuple(map(str, range(len(self.choices))))

    def encode(self, value: Any) -> Any:
        return str(self.choices.index(value)) if self.choices else value

    def decode(self, value: Any) -> Any:
        """The value of a library as plain JSON, kept inside the range: some libraries leave it by rounding."""
        if self.choices:
            return self.choices[int(value)]
        cast = int if self.type == "integer" else float
        return cast(min(max(cast(value), self.low), self.high))


@dataclass(frozen=True)
class Start:
    """What is searched. ``recipe`` is encoded; ``rungs`` run from the smallest to the full budget, in steps."""

    space: dict[str, Dimension]
    recipe: Config
    rungs: tuple[int, ...]
    eta: int
    seed: int

    @property
    def full(self) -> int:
        return self.rungs[-1]

    def resource(self, steps: int) -> int:
        """``steps``, one of the rungs, in units in which neighbouring rungs differ by exactly eta: 1 at the first."""
        return int(self.eta ** self.rungs.index(steps))

    def decode(self, values: Mapping[str, Any]) -> Config:
        return {name: dimension.decode(values[name]) for name, dimension in self.space.items()}


@dataclass(frozen=True)
class Job:
    """``handle`` is the library's own object; ``values`` are not yet decoded."""

    handle: Any
    values: Mapping[str, Any]
    steps: int


class Peer:
    """One search. ``reports``: it wants to be told of every rung that a job passes, to stop it there or not."""

    reports = False

    def ask(self) -> Job | None:
        """The next job, None where there will be no more."""
        raise NotImplementedError

    def report(self, job: Job, steps: int, score: float) -> bool:
        """Whether to stop ``job``, which has reached a rung below its ``steps``."""
        raise NotImplementedError

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        """``job`` has ended, for good or to be continued by another one. ``score`` is None where it failed."""
        raise NotImplementedError


class _Session:
    """The messages of one search, as methods."""

    def __init__(self, peer: Peer, start: Start) -> None:
        self._peer, self._start = peer, start
        self._jobs: list[Job] = []

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        job = self._peer.ask()
        if job is None:
            return {"done": True}
        self._jobs.append(job)
        return {"job": len(self._jobs) - 1, "config": self._start.decode(job.values), "steps": job.steps}

    def report(self, message: dict[str, Any]) -> dict[str, Any]:
        job = self._jobs[message["job"]]
        below = message["steps"] < job.steps
        return {"stop": below and self._peer.report(job, message["steps"], message["score"])}

    def tell(self, message: dict[str, Any]) -> dict[str, Any]:
        self._peer.tell(self._jobs[message["job"]], message["steps"], message["score"])
        return {}


def serve(package: str, variants: Mapping[str, Callable[[Start], Peer]]) -> None:
    """Answer on stdout until stdin ends; a new ``start`` begins a new search. All else that is printed goes to stderr.

    The warnings of libraries, old ones on new numpy above all, are left out.
    """
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            message = json.loads(line)
            if message["op"] == "start":
                start = _start(message)
                peer = variants[message["variant"]](start)
                session = _Session(peer, start)
                answer = {"version": importlib.metadata.version(package), "reports": peer.reports}
            else:
                answer = getattr(session, message["op"])(message)
            print(json.dumps(answer), file=answers, flush=True)


def _start(message: dict[str, Any]) -> Start:
    space = {
        name: Dimension(**{key: value for key, value in given.items() if value is not None})
        for name, given in message["space"].items()
    }
    recipe = {name: dimension.encode(message["recipe"][name]) for name, dimension in space.items()}
    return Start(space, recipe, tuple(message["rungs"]), int(message["eta"]), message["seed"])
