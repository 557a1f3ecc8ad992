"""A Llama of 5.8 million parameters with a tokenizer of its own, taught on the training rows of the HPC tasks."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcjf.study import AlgorithmSection, ModelSection
from hpcjf.tasks import render
from hpcjf.tasks.base import Row

VOCABULARY, LENGTH = 4096, 256
"""Ids of the tokenizer, and most tokens of a prompt: longer ones are left out of training and test."""
RESPONSE = 48
_PASSES, _BATCH, _RATE = 2, 16, 1e-3
_SFT_BATCH, _SFT_RATE = 32, 3e-4


def make(folder: Path, train: Sequence[Row], quick: bool) -> None:
    """Write tokenizer and model to ``folder``: next-token loss on whole rows, then on the responses alone (SFT)."""
    import torch

    from hpcjf.training.trainer import Trainer

    torch.set_num_threads(1)
    tokenizer = _tokenizer(train)
    model = _untrained(tokenizer)
    rows = fitting(train, tokenizer)[: 64 if quick else None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.01, fused=True)
    begin = time.process_time()
    for step, (ids, mask) in enumerate(_batches(rows, tokenizer)):
        logits = model(ids, attention_mask=mask).logits[:, :-1]
        targets = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            said = (
                f"pre-training: step {step}, loss {float(loss.detach()):.2f}, {time.process_time() - begin:.0f} CPU-s"
            )
            print(said, file=sys.stderr, flush=True)
    scratch = folder.with_name(f"{folder.name}-base")
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    steps = len(rows) // _SFT_BATCH
    algorithm = AlgorithmSection(
        pipeline="sft",
        sft_learning_rate=_SFT_RATE,
        sft_batch=_SFT_BATCH,
        lr_scheduler="cosine",
        max_new_tokens=RESPONSE,
        micro_batch=8,
    )
    trainer = Trainer(
        ModelSection(name="small", path="."),
        scratch,
        algorithm,
        rows,
        lambda rows, texts: [0.0] * len(rows),
        steps,
        0,
        render,
    )
    for step in range(steps):
        metrics = trainer.train_step()
        if step % 25 == 0:
            said = f"SFT: step {step} of {steps}, loss {metrics['loss']:.2f}, {time.process_time() - begin:.0f} CPU-s"
            print(said, file=sys.stderr, flush=True)
    trainer.export(folder)


def fitting(rows: Sequence[Row], tokenizer: Any) -> list[Row]:
    return [row for row in rows if len(render(row, tokenizer)) <= LENGTH]


def saved_tokenizer(folder: Path) -> Any:
    from hpcjf.training.policy import load_tokenizer

    return load_tokenizer(ModelSection(name="small", path="."), folder)


def _tokenizer(rows: Sequence[Row]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    pairs.train_from_iterator((text for row in rows for text in (row.prompt, *row.references)), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=pairs, padding_side="left", **dict(zip(("pad_token", "eos_token"), special, strict=True))
    )


def _untrained(tokenizer: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=688,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


def _batches(rows: Sequence[Row], tokenizer: Any) -> Iterator[tuple[Any, Any]]:
    """Right-padded ids and mask of prompt, response and end; rows of like length together, batches in random order."""
    import torch

    whole = [
        [*render(row, tokenizer), *tokenizer.encode(row.references[0]), tokenizer.eos_token_id][: LENGTH + RESPONSE]
        for row in rows
    ]
    whole.sort(key=len)
    batches = [whole[i : i + _BATCH] for i in range(0, len(whole), _BATCH)]
    for number in range(_PASSES):
        random.Random(number).shuffle(batches)
        for batch in batches:
            width = max(map(len, batch))
            ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in batch])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in batch])
            yield ids, mask
