"""Which races are run, and the file that keeps them: one line of JSON each, so that an interrupted run goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from race import environments
from race.cases import problem_of
from race.figures import OURS, Board
from race.noise import Choice
from race.ours import METHODS, run_ours
from race.outcome import Outcome
from race.peer import PeerError, run_peer
from race.pool import Pool, Site
from race.problem import Problem
from race.stopping import Measured, Rates

FULL_TRAININGS = 20
"""The budget of every race, in full trainings of the target with the recipe."""
_ON_THE_PROXY = " on the proxy"


@dataclass(frozen=True, slots=True)
class Race:
    """What tells one race from all others."""

    problem: str
    method: str
    seed: int
    workers: int = 4
    failures: float = 0.02


class Results:
    """What has been measured, in memory and, where ``path`` is given, in that file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.outcomes: dict[Race, Outcome] = {}
        self.stopping: list[Measured] = []
        self.noise: list[Choice] = []
        self.scale: dict[str, float] = {}
        lines = path.read_text().splitlines(keepends=True) if path is not None and path.exists() else []
        for line in lines:
            if line.endswith("\n"):  # one without was cut off by the end of a run
                self._take(json.loads(line))

    def add(self, race: Race, outcome: Outcome) -> None:
        self._keep({"race": asdict(race), "outcome": outcome.to_json()})

    def add_stopping(self, measured: Sequence[Measured]) -> None:
        self._keep({"stopping": [each._asdict() | {"rates": asdict(each.rates)} for each in measured]})

    def add_noise(self, measured: Sequence[Choice]) -> None:
        self._keep({"noise": [each._asdict() for each in measured]})

    def add_scale(self, measured: dict[str, float]) -> None:
        self._keep({"scale": measured})

    @property
    def board(self) -> Board:
        return Board((race.problem, outcome) for race, outcome in self.outcomes.items())

    def _keep(self, raw: dict[str, Any]) -> None:
        self._take(raw)
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps(raw), file=file)

    def _take(self, raw: dict[str, Any]) -> None:
        if "race" in raw:
            self.outcomes[Race(**raw["race"])] = Outcome.from_json(raw["outcome"])
        if "stopping" in raw:
            self.stopping = [Measured(**{**each, "rates": Rates(**each["rates"])}) for each in raw["stopping"]]
        if "noise" in raw:
            self.noise = [Choice(**each) for each in raw["noise"]]
        self.scale = raw.get("scale", self.scale)


def peers() -> list[str]:
    """Every variant of every peer."""
    return [f"{peer} {variant}" for peer, variants in environments.VARIANTS.items() for variant in variants]


def ways(method: str, problem: str) -> Iterator[str]:
    """The names under which ``method`` is raced on a problem: peers also on the proxy, where there is one.

    Variants of ours are raced where every part of it has something to do.
    """
    known = _problem(problem)
    if (known.dynamics and len(known.models) > 1) or not method.startswith(f"{OURS}-"):
        yield method
    if method not in METHODS and len(known.models) > 1:
        yield method + _ON_THE_PROXY


def site_of(problem: Problem, race: Race) -> Site:
    """A scheduler that takes as long as the proxy's start-up, and checkpoints as often as rungs can be."""
    latency = problem.startup_seconds(problem.models[0].name)
    return Site(race.workers, latency, race.failures, save_every=problem.rungs[0])


def budget_of(problem: Problem, seed: int) -> float:
    """Seconds of all workers together."""
    recipe = Pool(problem, seed, Site()).remaining(problem.recipe)
    return FULL_TRAININGS * recipe


def run(race: Race) -> Outcome:
    """Raises PeerError where a peer fails."""
    problem = _problem(race.problem)
    site, budget = site_of(problem, race), budget_of(problem, race.seed)
    if race.method in METHODS:
        return run_ours(problem, race.method, race.seed, budget, site)
    name = race.method.removesuffix(_ON_THE_PROXY)
    peer = environments.peer_of(*name.split(" ", 1))
    return run_peer(problem, peer, race.seed, budget, site, "target" if name == race.method else "proxy")


def run_all(races: Sequence[Race], results: Results, jobs: int) -> list[str]:
    """Run those that ``results`` lacks in ``jobs`` processes. Returns what went wrong with peers, a line each."""
    left = [race for race in races if race not in results.outcomes]
    wrong, start = [], time.monotonic()
    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        futures = {executor.submit(run, race): race for race in left}
        for number, future in enumerate(as_completed(futures), start=1):
            race = futures[future]
            try:
                results.add(race, future.result())
            except PeerError as error:
                wrong.append(f"{race.problem}, {race.method}, seed {race.seed}: {error}")
            seconds = time.monotonic() - start
            print(f"[{seconds:6.0f} s] {number} of {len(left)}: {race.problem}, {race.method}", file=sys.stderr)
    finally:
        executor.shutdown(cancel_futures=True)
    return wrong


@lru_cache(maxsize=16)
def _problem(name: str) -> Problem:
    return problem_of(name)
