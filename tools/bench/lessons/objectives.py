"""Whether each objective learns: addition with the tiny model s, and a control whose rewards are shuffled."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hpcjf.study import ModelSection, ObjectiveName
from hpcjf.tasks.base import Row
from lessons import tables
from lessons.jobs import Job, Outcome

TITLE = "Does each objective learn?"
CONTROL = "grpo, rewards shuffled"
_RATES = {"kto": 2e-5, "dpo": 2e-5, "simpo": 2e-5}
"""Where another rate than 1e-4 was taken: with larger ones these three learned less, or unlearned (tried on seed 1)."""


def jobs(seeds: int, quick: bool) -> list[Job]:
    steps, rows = (10, 100) if quick else (80, 1000)
    names = ["grpo", "kto"] if quick else list(get_args(ObjectiveName))
    found = []
    for name in (*names, CONTROL):
        objective = name.split(",")[0]
        algorithm = {
            "objective": objective,
            "learning_rate": _RATES.get(objective, 1e-4),
            "prompts_per_step": 16,
            "rollouts": 8,
            "minibatches": 2,
            "max_new_tokens": 4,
        }
        options = {"rows": rows, "shuffled": name == CONTROL}
        found += [Job("objectives", name, seed, "tiny-s", steps, algorithm, options) for seed in range(1, seeds + 1)]
    return found


def prepare(models: Path, quick: bool) -> None:
    """Make the tiny model, about a minute of one core, once."""
    from hpcjf.training.tiny import ensure_tiny

    ensure_tiny("tiny-s")


def run(job: Job, models: Path) -> dict[str, Any]:
    from hpcjf.study import AlgorithmSection
    from hpcjf.tasks import render
    from hpcjf.tasks.arithmetic import split_rows
    from hpcjf.training.tiny import ensure_tiny
    from hpcjf.training.trainer import Trainer

    train, _, test = split_rows()
    rewards, algorithm = Rewards(job.seed), AlgorithmSection.model_validate(job.algorithm)
    model, folder, rows = (
        ModelSection(name="model", path="."),
        ensure_tiny(job.start),
        test[: job.options["rows"]],
    )
    trainer = Trainer(model, folder, algorithm, train, rewards, job.steps, job.seed, render)
    before = trainer.evaluate(rows)
    rewards.shuffled = job.options["shuffled"]
    kl = [trainer.train_step()["kl"] for _ in range(job.steps)][-1]
    rewards.shuffled = False
    return {"before": before, "after": trainer.evaluate(rows), "kl": kl}


class Rewards:
    """1 for the right sum; while ``shuffled``, each for another response of its batch."""

    def __init__(self, seed: int) -> None:
        self.shuffled = False
        self._stream = random.Random(seed)

    def __call__(self, rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
        found = [float(response in row.references) for row, response in zip(rows, responses, strict=True)]
        if self.shuffled:
            self._stream.shuffle(found)
        return found


def report(outcomes: Sequence[Outcome]) -> list[str]:
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.job.name, []).append(outcome)
    first = outcomes[0]
    size = f"{len(by_name[first.job.name])} seeds, {len(first.found['after'])} test prompts, {first.job.steps} steps"
    lines = [f"Greedy score, {size}, model {first.job.start}; gain over the untrained model, paired.", ""]
    rows = []
    for name, found in by_name.items():
        gain = tables.of(found, "after", less="before")
        verdict = "learns" if gain.low > 0 else "loses" if gain.high < 0 else "no clear change"
        rate = f"{found[0].job.algorithm['learning_rate']:g}"
        cells = (tables.cell(tables.of(found, "after")), tables.cell(gain, signed=True), verdict)
        rows.append((name, rate, *cells))
    return lines + tables.markdown(("objective", "learning rate", "score", "gain", ""), rows)


def figures(outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    """Lower bound of each objective's gain, for the JSON."""
    names = dict.fromkeys(outcome.job.name for outcome in outcomes)
    return {
        f"{name} gain_low": tables.of([o for o in outcomes if o.job.name == name], "after", less="before").low
        for name in names
    }
