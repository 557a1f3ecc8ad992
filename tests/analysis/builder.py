"""Run directories for the tests, written through the store: real journals, traces and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.store.frozen import freeze_study
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult
from hpcjf.store.traces import TraceWriter
from hpcjf.study import Study
from hpcjf.types import Cause, Config

START = 1_750_000_000.0
RECIPE: Config = {"learning_rate": 1e-6, "lr_scheduler": "constant", "kl_coef": 0.001, "rollouts": 5}
STUDY: dict[str, Any] = {
    "study": {"name": "demo", "seed": 1, "training_seeds": 3},
    "models": [{"name": "small", "path": "builtin:tiny-xs"}, {"name": "large", "path": "builtin:tiny-s"}],
    "recipe": dict(RECIPE),
    "space": {
        "learning_rate": {"type": "real", "low": 1e-7, "high": 1e-4, "log": True},
        "lr_scheduler": {"type": "categorical", "choices": ["constant", "cosine"]},
        "kl_coef": {"type": "real", "low": 1e-4, "high": 0.1, "log": True},
        "rollouts": {"type": "integer", "low": 2, "high": 16},
    },
    "budget": {"min": 10, "max": 90, "eta": 3},
    "search": {"max_trials": 24},
}


class RunBuilder:
    """Writes a run as a controller and its jobs would have. Times are seconds after ``START``."""

    def __init__(self, root: Path, study: Mapping[str, Any] | None = None) -> None:
        self.layout = RunLayout(root)
        self.layout.create()
        self.study = Study.model_validate(STUDY | dict(study or {}))
        freeze_study(self.layout, self.study)
        self.journal = JournalWriter(self.layout.journal)
        self.trials = 0
        self.attempts: dict[int, int] = {}
        self.event("study", 0, run_id="run1")
        self.event("controller", 0, generation=1, hpcjf="0.1", python="3.11")

    def event(self, kind: str, at: float, **values: Any) -> None:
        self.journal.append({"kind": kind, "time": START + at, **values})

    def trial(
        self, config: Config, model: str, steps: int, at: float = 0, *, seed: int = 1, purpose: str = "search"
    ) -> int:
        number, self.trials = self.trials, self.trials + 1
        self.event(
            "trial", at, number=number, config_id=config_id(config), config=dict(config), model=model, steps=steps,
            training_seed=seed, purpose=purpose, why={},
        )  # fmt: skip
        return number

    def submit(self, trial: int, at: float = 0, *, started: float | None = None) -> int:
        number = self.attempts[trial] = self.attempts.get(trial, 0) + 1
        self.layout.attempt(trial, number).create()
        self.event("attempt", at, trial=trial, attempt=number, name=self.name(trial, number))
        self.event("submitted", at, trial=trial, attempt=number, job_id=str(1000 + 10 * trial + number))
        if started is not None:
            self.event("started", started, trial=trial, attempt=number)
        return number

    @staticmethod
    def name(trial: int, attempt: int) -> str:
        return f"run1-{trial:04d}-{attempt:02d}"

    def stopping(self, trial: int, at: float, cause: Cause, why: str) -> None:
        self.event("stopping", at, trial=trial, attempt=self.attempts[trial], cause=cause, why=why)

    def end(
        self,
        trial: int,
        at: float,
        step: int,
        *,
        start: int = 0,
        score: float | None = None,
        cause: Cause = Cause.COMPLETED,
        seconds: float = 100.0,
        startup: float = 20.0,
        detail: str = "",
        retry: bool = False,
        kl: float | None = None,
    ) -> None:
        self.event(
            "ended", at, trial=trial, attempt=self.attempts[trial], cause=cause, step=step, start_step=start,
            score=score, seconds=seconds, startup_seconds=startup, detail=detail, retry=retry, kl=kl,
        )  # fmt: skip

    def result(
        self,
        trial: int,
        step: int,
        *,
        start: int = 0,
        score: float | None = None,
        cause: Cause = Cause.COMPLETED,
        test_scores: Sequence[float] | None = None,
        base_test_scores: Sequence[float] | None = None,
    ) -> None:
        number = self.attempts[trial]
        result = AttemptResult(
            name=self.name(trial, number), cause=cause, step=step, start_step=start, score=score, seconds=100.0,
            startup_seconds=20.0, cpu_seconds=90.0, peak_mb=700.0,
            test_scores=None if test_scores is None else tuple(test_scores),
            base_test_scores=None if base_test_scores is None else tuple(base_test_scores),
        )  # fmt: skip
        result.write(self.layout.attempt(trial, number).result)

    def trace(self, trial: int, start: int, stop: int, *, gain: float = 0.5, kl: float = 0.05) -> None:
        """Steps ``start`` + 1 to ``stop``; an evaluation every ten steps and at the end."""
        noise = np.random.default_rng(trial)
        with TraceWriter(self.layout.attempt(trial, self.attempts[trial]).trace, fsync_seconds=1e9) as writer:
            for step in range(start + 1, stop + 1):
                level = 0.2 + gain * (1 - math.exp(-step / 30))
                evaluated = step % 10 == 0 or step == stop
                writer.append(
                    step=step,
                    reward_mean=level + 0.03 * noise.standard_normal(),
                    kl=kl * step / 30 * (1 + 0.1 * noise.standard_normal()),
                    eval_score=level if evaluated else None,
                )

    def job(
        self, config: Config, model: str, steps: int, at: float, *, start: int = 0, gain: float = 0.5, seed: int = 1
    ) -> int:
        """A search trial from submission to its full budget; four seconds a step."""
        trial = self.trial(config, model, steps, at, seed=seed)
        self.submit(trial, at, started=at + 30)
        score = 0.2 + gain * (1 - math.exp(-steps / 30))
        self.trace(trial, start, steps, gain=gain)
        seconds = 4.0 * (steps - start)
        self.result(trial, steps, start=start, score=score)
        self.end(trial, at + 50 + seconds, steps, start=start, score=score, seconds=seconds)
        return trial

    def final(
        self,
        config: Config,
        purpose: str,
        seed: int,
        at: float,
        test: Sequence[float],
        base: Sequence[float] | None = None,
    ) -> int:
        """A completed final trial on the target."""
        trial = self.trial(config, "large", 90, at, seed=seed, purpose=purpose)
        self.submit(trial, at, started=at + 30)
        self.trace(trial, 0, 90, gain=float(np.mean(test)))
        self.result(trial, 90, score=0.6, test_scores=test, base_test_scores=base)
        self.end(trial, at + 800, 90, score=0.6, seconds=750.0)
        return trial

    def incumbent(self, at: float, config: Config, score: float) -> None:
        self.event("incumbent", at, config_id=config_id(config), config=dict(config), score=score)

    def phase(self, at: float, phase: str, reason: str = "") -> None:
        self.event("phase", at, phase=phase, reason=reason)


def sampled(rng: np.random.Generator) -> Config:
    """A configuration of ``STUDY``'s space."""
    return {
        "learning_rate": float(10 ** rng.uniform(-7, -4)),
        "lr_scheduler": str(rng.choice(["constant", "cosine"])),
        "kl_coef": float(10 ** rng.uniform(-4, -1)),
        "rollouts": int(rng.integers(2, 17)),
    }


def gain_of(config: Config) -> float:
    """A made-up response surface: best near a learning rate of 1e-5 with a cosine schedule."""
    distance = abs(math.log10(float(config["learning_rate"])) + 5)
    return 0.55 - 0.15 * distance + 0.05 * (config["lr_scheduler"] == "cosine")


def demo(root: Path, configurations: int = 14, *, finals: bool = True) -> RunBuilder:
    """A whole study: rungs, promotions, stops, failures, retries, and the final comparison."""
    run, rng = RunBuilder(root), np.random.default_rng(7)
    configs = [RECIPE, *(sampled(rng) for _ in range(configurations - 1))]
    slots, best, clock = [0.0] * 4, -1.0, 0.0
    for index, config in enumerate(configs):
        clock = min(slots)
        slot = slots.index(clock)
        gain = gain_of(config)
        if index % 6 == 4:
            slots[slot] = _stopped(run, config, clock)
        elif index % 7 == 5:
            slots[slot] = _retried(run, config, clock, gain)
        else:
            trial = run.job(config, "small", 10, clock, gain=gain)
            slots[slot] = clock + 90 + 40 * (trial % 3)
            if gain > 0.4:
                run.job(config, "small", 30, slots[slot], start=10, gain=gain)
                slots[slot] += 140
                run.job(config, "large", 10, slots[slot], gain=gain * 0.9)
                slots[slot] += 100
        score = 0.2 + gain * (1 - math.exp(-(30 if gain > 0.4 else 10) / 30))
        if score > best and index % 6 != 4 and index % 7 != 5:
            best = score
            run.incumbent(slots[slot], config, score)
    end = max(slots)
    if finals:
        _finals(run, configs, end)
    return run


def _stopped(run: RunBuilder, config: Config, at: float) -> float:
    trial = run.trial(config, "small", 90, at)
    run.submit(trial, at, started=at + 20)
    run.trace(trial, 0, 17, gain=0.1, kl=2.0)
    run.stopping(trial, at + 100, Cause.STOPPED_KL, "KL grew by more than 15 % on 5 steps in a row")
    run.result(trial, 17, score=0.24, cause=Cause.STOPPED_KL)
    run.end(trial, at + 110, 17, score=0.24, cause=Cause.STOPPED_KL, seconds=70)
    return at + 110


def _retried(run: RunBuilder, config: Config, at: float, gain: float) -> float:
    trial = run.trial(config, "small", 30, at)
    run.submit(trial, at, started=at + 20)
    run.trace(trial, 0, 14, gain=gain)
    run.end(trial, at + 100, 14, cause=Cause.PREEMPTED, seconds=60, detail="preempted by partition high", retry=True)
    run.submit(trial, at + 105, started=at + 160)
    run.trace(trial, 10, 30, gain=gain)
    run.end(trial, at + 260, 30, start=10, score=0.2 + gain * 0.6, seconds=80)
    failed = run.trial({**config, "rollouts": 16}, "small", 10, at + 260)
    run.submit(failed, at + 260, started=at + 270)
    run.end(failed, at + 300, 0, cause=Cause.OUT_OF_MEMORY, seconds=0, detail="killed at 3.9 GB of 4 GB")
    return at + 300


def _finals(run: RunBuilder, configs: Sequence[Config], at: float) -> None:
    run.phase(at, "final", "24 trials")
    winner = max(configs, key=gain_of)
    rng = np.random.default_rng(3)
    hard = rng.uniform(0, 1, 200)
    base = (hard < 0.25).astype(float).tolist()
    for seed in (1, 2, 3):
        for config, purpose, level in ((winner, "final", 0.66), (RECIPE, "recipe", 0.52)):
            scores = (hard < level + 0.04 * rng.standard_normal() + 0.1 * rng.standard_normal(200)).astype(float)
            run.final(config, purpose, seed, at + 10 * seed, scores.tolist(), base)
    run.phase(at + 2000, "done")
