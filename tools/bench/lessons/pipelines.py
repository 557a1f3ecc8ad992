"""RL, SFT, one after the other and both averaged, from three checkpoints of one small pre-training run."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcjf.analysis.evaluation import change
from hpcjf.core.pass_at_k import pass_at_k
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.choices import Question
from lessons import tables
from lessons.jobs import Job, Outcome

TITLE = "RL and SFT from three checkpoints"
STARTS = {"early": 0.05, "middle": 0.15, "late": 0.3}
"""Checkpoints of the pre-training: the first ones with this share of sums right."""
PIPELINES = ("base", "rl", "sft", "sft_then_rl", "parallel")
_SAMPLES, _K = 64, 32
_COMMON = {
    "learning_rate": 1e-4,
    "sft_learning_rate": 1e-4,
    "sft_batch": 64,
    "prompts_per_step": 16,
    "rollouts": 8,
    "minibatches": 1,
    "max_new_tokens": 4,
}
_BATCH, _RATE, _LIMIT = 256, 2e-3, 3000


def jobs(seeds: int, quick: bool) -> list[Job]:
    steps, options = (3, {"rows": 20, "questions": 20}) if quick else (100, {"rows": 200, "questions": 1000})
    return [
        Job("pipelines", name, seed, start, 0 if name == "base" else steps, _COMMON | _pipeline(name), options)
        for start in (("late",) if quick else STARTS)
        for name in PIPELINES
        for seed in range(1, (1 if name == "base" else seeds) + 1)
    ]


def prepare(models: Path, quick: bool) -> None:
    """Pre-train on sums and differences, and keep the three checkpoints; about three minutes of one core, once."""
    import torch

    from hpcjf.training.tiny import SHAPES, encode, greedy_share, supervised_step, untrained

    wanted = {name: share for name, share in STARTS.items() if not (models / name / "config.json").exists()}
    if not wanted:
        return
    torch.set_num_threads(1)
    model, tokenizer = untrained(SHAPES["tiny-s"], 0)
    parts = [encode(tokenizer, split_rows(task)[0]) for task in ("arithmetic", "subtraction")]
    prompt, ids = parts[0][1], torch.cat([part for part, _ in parts])
    probe, _ = encode(tokenizer, split_rows()[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.01, fused=True)
    stream = torch.Generator().manual_seed(0)
    for step in range(1, _LIMIT + 1):
        batch = ids[torch.randint(len(ids), (_BATCH,), generator=stream)]
        supervised_step(model, optimizer, batch, prompt)
        if step % 5 == 0:
            share = greedy_share(model, probe, prompt)
            for name in [name for name, least in wanted.items() if share >= least]:
                del wanted[name]
                print(f"pre-training: {name} at step {step}, {share:.1%} right", file=sys.stderr, flush=True)
                model.save_pretrained(models / name)
                tokenizer.save_pretrained(models / name)
            if not wanted:
                return
    raise RuntimeError(f"pre-training did not reach {wanted}")


def run(job: Job, models: Path) -> dict[str, Any]:
    from hpcjf.study import AlgorithmSection, ModelSection
    from hpcjf.tasks import render
    from hpcjf.training.evaluation import right_choices
    from hpcjf.training.trainer import Trainer

    train, _, test = split_rows()
    trainer = Trainer(
        ModelSection(name="s", path="."),
        models / job.start,
        AlgorithmSection.model_validate(job.algorithm),
        train,
        lambda rows, texts: [float(text in row.references) for row, text in zip(rows, texts, strict=True)],
        max(job.steps, 1),
        job.seed,
        render,
    )
    for _ in range(job.steps):
        trainer.train_step()
    counts = trainer.count_right(test[: job.options["rows"]], _SAMPLES, 0.6)
    return {
        "pass@1": [pass_at_k(_SAMPLES, count, 1) for count in counts],
        f"pass@{_K}": [pass_at_k(_SAMPLES, count, _K) for count in counts],
        "capability": right_choices(trainer.policy, questions(job.options["questions"])),
    }


def questions(count: int) -> list[Question]:
    """Differences, of which no pipeline trains any: the right one among three others, chance is a quarter."""
    stream, found = random.Random(0), []
    for row in split_rows("subtraction")[1][:count]:
        value = int(row.references[0])
        choices = [value, *stream.sample([other for other in range(-99, 100) if other != value], 3)]
        stream.shuffle(choices)
        found.append(Question(row.prompt, tuple(f"{each:+03d}" for each in choices), choices.index(value)))
    return found


def report(outcomes: Sequence[Outcome]) -> list[str]:
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.job.start, outcome.job.name), []).append(outcome)
    last, wide = outcomes[-1], f"pass@{_K}"
    rows = []
    for (start, name), found in groups.items():
        base = groups[start, "base"] * len(found)
        cells = [tables.cell(tables.of(found, what)) for what in ("pass@1", wide, "capability")]
        said = ""
        if name != "base":
            gains = {k: tables.paired(found, base, f"pass@{k}") for k in (1, _K)}
            said = next((word for word in ("Expansion", "Sharpening") if change(gains).startswith(word)), "–")
            cells += [tables.cell(tables.paired(found, base, what), signed=True) for what in (wide, "capability")]
        rows.append((start, name, *cells, *["–"] * (5 - len(cells)), said))
    lines = [
        f"Addition by a model of 0.45 million parameters, pre-trained on sums and differences; {last.job.steps} steps,",
        f"{len(groups[last.job.start, last.job.name])} seeds, {len(last.found['pass@1'])} test prompts,",
        f"{_SAMPLES} samples at temperature 0.6. Capability: the likeliest of four answers to",
        f"{len(last.found['capability'])} differences, which the pipelines never train on; chance is 0.25. Gains over",
        "the base are paired.",
        "",
    ]
    head = ("start", "pipeline", "pass@1", wide, "capability", f"{wide} over base", "capability over base", "change")
    return lines + tables.markdown(head, rows)


def figures(outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(f"{outcome.job.start} {outcome.job.name}", []).append(outcome)
    return {f"{name} {what}": tables.of(each, what).mean for name, each in found.items() for what in each[0].found}


def _pipeline(name: str) -> dict[str, Any]:
    return {} if name == "base" else {"pipeline": name}
