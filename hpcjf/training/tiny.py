"""Tiny Llama models that know a little arithmetic: studies and tests run on them without a hub or a GPU.

``python -m hpcjf.training.tiny tiny-s tiny-m`` makes them ready. Importing this module loads neither torch nor
transformers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcjf.errors import HpcjfError, ModelError, TrainingError
from hpcjf.study import ArithmeticTask
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.base import Row

_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
_SYMBOLS = "0123456789+-*= "
_BATCH, _EVALUATE_EVERY, _REPORT_EVERY, _LIMIT, _SEED = 256, 5, 100, 1500, 0
_NEAR, _TARGET = 0.18, 0.25  # share of held-out rows that is right: from the first on look after every step


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a model, the rate at which it is taught, and what."""

    parameters: int
    hidden: int
    layers: int
    feed_forward: int
    rate: float
    task: ArithmeticTask = "arithmetic"


SHAPES = {
    "tiny-xs": Shape(101_888, 64, 2, 176, 3e-3),
    "tiny-s": Shape(445_056, 96, 4, 256, 2e-3),
    "tiny-m": Shape(1_068_800, 128, 5, 384, 1e-3),
    "tiny-l": Shape(4_751_360, 256, 6, 688, 7e-4),
    "tiny-xs-subtraction": Shape(101_888, 64, 2, 176, 3e-3, "subtraction"),
    "tiny-s-subtraction": Shape(445_056, 96, 4, 256, 2e-3, "subtraction"),
    "tiny-m-subtraction": Shape(1_068_800, 128, 5, 384, 1e-3, "subtraction"),
}


def default_cache() -> Path:
    """``models`` under $HPCJF_CACHE, else under ~/.cache/hpcjf."""
    return Path(os.environ.get("HPCJF_CACHE") or Path.home() / ".cache" / "hpcjf") / "models"


def ensure_tiny(name: str, cache: Path | None = None) -> Path:
    """Folder of the model, taught once (about a minute of one core) and then taken from ``cache``.

    Safe with several processes at once: each teaches in a folder of its own and the first to finish is kept.
    """
    if name not in SHAPES:
        raise ModelError(f"no built-in model {name}", fix=f"use one of {', '.join(SHAPES)}")
    root = cache or default_cache()
    folder = root / name
    if (folder / "config.json").exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    try:
        _teach(SHAPES[name], scratch, name)
        scratch.chmod(0o755)
        _publish(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def untrained(shape: Shape, seed: int) -> tuple[Any, Any]:
    """Model with random weights and its tokenizer, in float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(_SPECIAL) + len(_SYMBOLS),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        return model.train(False), tokenizer


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: i for i, symbol in enumerate([*_SPECIAL, *_SYMBOLS])}
    pad, bos, eos, unk = _SPECIAL
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token=unk))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=characters,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token=unk,
        padding_side="left",
        model_max_length=64,
    )


def _teach(shape: Shape, folder: Path, name: str) -> None:
    """Supervised steps on the task's training rows until a quarter of held-out rows is right; saves to ``folder``."""
    import torch

    train, held_out, _ = split_rows(shape.task)
    model, tokenizer = untrained(shape, _SEED)
    ids, prompt = encode(tokenizer, train)
    probe, _ = encode(tokenizer, held_out)
    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.rate, weight_decay=0.01, fused=True)
    stream = torch.Generator().manual_seed(_SEED)
    begin, threads, share = time.process_time(), torch.get_num_threads(), 0.0
    torch.set_num_threads(1)
    try:
        for step in range(1, _LIMIT + 1):
            batch = ids[torch.randint(len(ids), (_BATCH,), generator=stream)]
            supervised_step(model, optimizer, batch, prompt)
            if share >= _NEAR or step % _EVALUATE_EVERY == 0:
                share = greedy_share(model, probe, prompt)
                done = share >= _TARGET
                if done or step % _REPORT_EVERY == 0:
                    spent = time.process_time() - begin
                    print(f"{name}: step {step}, {share:.1%} right, {spent:.0f} CPU-s", flush=True)
                if done:
                    model.save_pretrained(folder)
                    tokenizer.save_pretrained(folder)
                    return
    finally:
        torch.set_num_threads(threads)
    raise TrainingError(f"{name} did not learn {shape.task} within {_LIMIT} steps")


def supervised_step(model: Any, optimizer: Any, batch: Any, prompt: int) -> None:
    """One step on rows ``[N, L]`` of ids, all of whose prompts have ``prompt`` tokens."""
    import torch

    logits = model(batch[:, :-1], use_cache=False).logits[:, prompt - 1 :]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, prompt:].flatten())
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def encode(tokenizer: Any, rows: Sequence[Row]) -> tuple[Any, int]:
    """Ids ``[N, L]`` of prompt, answer and end, and the length of the prompt; all rows are equally long."""
    import torch

    texts = [row.prompt + row.references[0] for row in rows]
    ids = torch.tensor([[*row, tokenizer.eos_token_id] for row in tokenizer(texts)["input_ids"]])
    return ids, len(rows[0].prompt)


def greedy_share(model: Any, ids: Any, prompt: int) -> float:
    """Share of ``ids`` whose greedy completion is right: every next token must be the most probable one."""
    import torch

    with torch.no_grad():
        best = model(ids[:, :-1], use_cache=False).logits[:, prompt - 1 :].argmax(-1)
    return float((best == ids[:, prompt:]).all(1).float().mean())


def _publish(scratch: Path, folder: Path) -> None:
    """Rename; where another process was faster its folder stays, the weights being the same."""
    try:
        scratch.rename(folder)
    except OSError:
        if not (folder / "config.json").exists():
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hpcjf.training.tiny", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(SHAPES), metavar="NAME", help=", ".join(SHAPES))
    parser.add_argument("--cache", type=Path, default=None, help="folder of models; default $HPCJF_CACHE/models")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            print(f"{name}: {ensure_tiny(name, options.cache)}", flush=True)
    except HpcjfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
