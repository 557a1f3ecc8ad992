"""One process of TRL: ``python trl_side.py JOB.json``. Needs trl, and nothing of ours."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from duel.fixture import Job, questions, reward
from duel.meter import Reading, size_of


def main() -> None:
    job, reading = Job.read(sys.argv[1]), Reading()
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from transformers.models.llama import modeling_llama  # noqa: F401
    from trl import GRPOConfig, GRPOTrainer

    if job.lora:
        import peft
    reading.import_cpu_s = time.process_time()

    def rewards(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
        return [reward(text, right, job.tokens) for text, right in zip(texts, answer, strict=True)]

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            reading.step_done()

        def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
            if "reward" in logs:
                reading.rewards.append(logs["reward"])
                reading.lengths.append(logs["completions/mean_length"])

    tokenizer = AutoTokenizer.from_pretrained(job.model, padding_side="left")
    chat = bool(tokenizer.chat_template)
    rows = [
        {"prompt": [{"role": "user", "content": prompt}] if chat else prompt, "answer": answer}
        for prompt, answer in questions(job.prompt)
    ]
    # our algorithm (of k3 its own gradient, as in GRPO), and no defaults that cost time: bf16, gradient checkpointing
    config = GRPOConfig(
        output_dir=job.folder,
        model_init_kwargs={"dtype": "float32"},
        per_device_train_batch_size=job.prompts * job.group,
        num_generations=job.group,
        max_completion_length=job.tokens,
        max_steps=job.steps,
        save_steps=job.steps,
        logging_steps=1,
        learning_rate=job.rate,
        lr_scheduler_type="constant",
        beta=job.kl,
        use_bias_correction_kl=False,
        loss_type="grpo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        seed=job.seed,
    )
    adapter = None
    if job.lora:
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        adapter = peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM")
    trainer = GRPOTrainer(
        model=job.model,
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Watch()],
        peft_config=adapter,
    )
    reading.ready_cpu_s = time.process_time()
    trainer.train()
    reading.checkpoint_bytes = size_of(Path(job.folder) / f"checkpoint-{job.steps}")
    reading.threads = torch.get_num_threads()
    names = ("torch", "transformers", "peft", "trl")
    reading.versions = {name: importlib.metadata.version(name) for name in names}
    reading.write(job.folder)


if __name__ == "__main__":
    main()
