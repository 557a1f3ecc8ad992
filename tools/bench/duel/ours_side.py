"""One process of ours: ``python ours_side.py JOB.json``."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from duel.fixture import Job, questions, reward
from duel.meter import Reading, size_of


def main() -> None:
    job, reading = Job.read(sys.argv[1]), Reading()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    from hpcjf.study import AlgorithmSection, ModelSection
    from hpcjf.tasks import Row, render
    from hpcjf.training.trainer import Trainer

    if job.lora:
        import peft  # noqa: F401
    reading.import_cpu_s = time.process_time()

    def score(rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
        return [reward(text, row.references[0], job.tokens) for row, text in zip(rows, responses, strict=True)]

    algorithm = AlgorithmSection(
        prompts_per_step=job.prompts,
        rollouts=job.group,
        minibatches=1,
        max_new_tokens=job.tokens,
        learning_rate=job.rate,
        kl_coef=job.kl,
    )
    model = ModelSection.model_validate(
        {"name": "model", "path": job.model, "adapter": {"type": "lora" if job.lora else "none"}}
    )
    rows = [Row.of(prompt, (answer,), "sums") for prompt, answer in questions(job.prompt)]
    trainer = Trainer(model, Path(job.model), algorithm, rows, score, job.steps, job.seed, render)
    reading.ready_cpu_s = time.process_time()
    for _ in range(job.steps):
        metrics = trainer.train_step()
        reading.step_done()
        reading.rewards.append(metrics["reward_mean"])
        reading.lengths.append(metrics["response_length"])
    folder = Path(job.folder) / "checkpoint"
    trainer.save(folder)
    reading.checkpoint_bytes, reading.threads = size_of(folder), torch.get_num_threads()
    reading.versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "peft")}
    reading.write(job.folder)


if __name__ == "__main__":
    main()
