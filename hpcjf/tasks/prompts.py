"""From a row to the tokens of its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hpcjf.tasks.base import Row


class Tokenizer(Protocol):
    """What this module uses of a transformers tokenizer."""

    chat_template: Any
    bos_token: Any
    eos_token_id: Any

    def apply_chat_template(self, conversation: Any, *, tokenize: Any, add_generation_prompt: Any) -> Any: ...

    def encode(self, text: Any, *, add_special_tokens: Any) -> Any: ...


def render(row: Row, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the prompt: one user turn of the chat template where there is one, else the plain text.

    Special tokens come once: a template writes its own, and a plain text must not end with EOS.
    """
    if getattr(tokenizer, "chat_template", None):
        turns = [{"role": "user", "content": row.prompt}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return list(tokenizer.encode(text, add_special_tokens=False))
    bos = getattr(tokenizer, "bos_token", None)
    doubled = bos is not None and row.prompt.startswith(bos)
    return _without_end(list(tokenizer.encode(row.prompt, add_special_tokens=not doubled)), tokenizer)


def _without_end(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    end = getattr(tokenizer, "eos_token_id", None)
    return list(ids[:-1]) if len(ids) > 1 and ids[-1] == end else list(ids)
