"""What both trainers get: models, prompts, the reward, the batch. Needs transformers, and nothing of ours."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
_SYMBOLS = "0123456789+-*=abcdefghijklmnopqrstuvwxyz .,?:ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ROWS, _LENGTH, _PRIVATE = 512, 256, 0xE000  # embeddings, positions, and where unused symbols begin


@dataclass(frozen=True, slots=True)
class Job:
    """One process: a trainer on a model for ``steps`` global steps, then one checkpoint in ``folder``."""

    model: str
    lora: bool
    prompt: str  # with places for {a} and {b}
    prompts: int  # a step
    group: int
    tokens: int  # of a completion, at most
    rate: float
    kl: float
    steps: int
    seed: int
    folder: str

    @classmethod
    def read(cls, path: str) -> Self:
        return cls(**json.loads(Path(path).read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def questions(prompt: str, count: int = 256) -> list[tuple[str, str]]:
    """Sums of two-digit numbers as (prompt, answer)."""
    draw = random.Random(0)
    pairs = [(draw.randint(0, 99), draw.randint(0, 99)) for _ in range(count)]
    return [(prompt.format(a=f"{a:02d}", b=f"{b:02d}"), str(a + b)) for a, b in pairs]


def reward(text: str, answer: str, tokens: int) -> float:
    """In [0, 2] where a token is a symbol: digits over the length limit, and 1 for the answer at the beginning."""
    return sum(symbol.isdigit() for symbol in text) / tokens + text.startswith(answer)


def save_tiny(folder: Path) -> None:
    """A Llama with 918,656 random weights and a vocabulary of 512 symbols, most of them unused."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    symbols = [*_SPECIAL, *_SYMBOLS]
    symbols += [chr(_PRIVATE + i) for i in range(_ROWS - len(symbols))]
    pad, bos, eos, unk = _SPECIAL
    inner = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(symbols)}, unk_token=unk))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    names: dict[str, Any] = {"pad_token": pad, "bos_token": bos, "eos_token": eos, "unk_token": unk}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=_LENGTH, padding_side="left", **names)  # type: ignore[no-untyped-call]
    config = LlamaConfig(
        vocab_size=_ROWS,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        max_position_embeddings=_LENGTH,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
