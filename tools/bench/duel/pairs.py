"""Pairs of processes: ours, then TRL's, on the same job; nothing else of this tool runs meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from duel.fixture import Job
from duel.meter import Reading
from hpcjf.errors import HpcjfError

_HERE = Path(__file__).parent
_BATCH = {"prompts": 4, "group": 8, "tokens": 32}


@dataclass(frozen=True, slots=True)
class Pair:
    ours: Reading
    trl: Reading


def tiny(model: Path, *, kl: float, steps: int) -> Job:
    """All weights of the small model; prompts of six tokens."""
    return Job(str(model), False, "{a}+{b}=", **_BATCH, rate=1e-3, kl=kl, steps=steps, seed=0, folder="")


def smollm2(model: Path, *, steps: int) -> Job:
    """An adapter on a real one; chat prompts of about 45 tokens that ask for more words than there is room for."""
    prompt = "Work out {a}+{b} step by step."
    return Job(str(model), True, prompt, **_BATCH, rate=1e-4, kl=0.04, steps=steps, seed=0, folder="")


def run(name: str, job: Job, seeds: Iterable[int], trl: Path, threads: int) -> list[Pair]:
    """A pair per seed. Raises HpcjfError where a process fails, with its last line."""
    pairs, start = [], time.monotonic()
    for seed in seeds:
        readings = []
        for side, python in (("ours", Path(sys.executable)), ("trl", trl)):
            readings.append(_one(side, python, replace(job, seed=seed), threads))
            print(f"[{time.monotonic() - start:5.0f} s] {name}, seed {seed}, {side}", file=sys.stderr, flush=True)
        pairs.append(Pair(*readings))
    return pairs


def _one(side: str, python: Path, job: Job, threads: int) -> Reading:
    count = str(threads)
    counts = {f"{library}_NUM_THREADS": count for library in ("OMP", "MKL", "OPENBLAS")}
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory(prefix="hpcjf-bench-") as name:
        folder = Path(name)
        replace(job, folder=name).write(folder / "job.json")
        command: Sequence[str | Path] = (python, _HERE / f"{side}_side.py", folder / "job.json")
        done = subprocess.run(command, env=os.environ | counts | offline, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise HpcjfError(said[-1] if said else f"exit code {done.returncode}", where=f"process of {side}")
        reading = Reading.read(folder)
    if reading.threads != threads:
        raise HpcjfError(f"ran with {reading.threads} threads, not {threads}", where=f"process of {side}")
    return reading
