"""Training runs of a benchmark: each in a process of its own, each recorded as soon as it is done."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """One run of ``part``: ``name`` is its line in the table, ``start`` the model it begins with, ``algorithm`` what it
    sets there."""

    part: str
    name: str
    seed: int
    start: str
    steps: int
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Outcome:
    job: Job
    found: Mapping[str, Any]
    """Figures by name; scores are lists with one value a row."""


Run = Callable[[Job, Path], Mapping[str, Any]]
"""From a job and the folder of models that were made for it to its figures."""


def run_all(jobs: Sequence[Job], run: Run, models: Path, results: Path, workers: int) -> list[Outcome]:
    """Outcomes of ``jobs``, in their order. Those that ``results`` has are taken from there, others are appended."""
    known = read(results)
    missing = [job for job in jobs if job.key not in known]
    begin = time.monotonic()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(run, job, models): job for job in missing}
        for done, future in enumerate(as_completed(futures), 1):
            job = futures[future]
            known[job.key] = dict(future.result())
            with results.open("a") as file:
                file.write(json.dumps({"key": job.key, "found": known[job.key]}) + "\n")
            spent = time.monotonic() - begin
            said = f"[{spent:5.0f} s] {done} of {len(missing)}: {job.part}, {job.start}, {job.name}, seed {job.seed}"
            print(said, file=sys.stderr, flush=True)
    return [Outcome(job, known[job.key]) for job in jobs]


def read(results: Path) -> dict[str, Mapping[str, Any]]:
    """Figures by the job's key."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {entry["key"]: entry["found"] for entry in map(json.loads, lines)}
