"""From a row to the tokens of its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hpcjf.errors import TaskError
from hpcjf.study import Template
from hpcjf.tasks.base import Row


class Tokenizer(Protocol):
    """What this module uses of a transformers tokenizer."""

    chat_template: Any
    bos_token: Any
    eos_token_id: Any

    def apply_chat_template(self, conversation: Any, *, tokenize: Any, add_generation_prompt: Any) -> Any: ...

    def encode(self, text: Any, *, add_special_tokens: Any) -> Any: ...


def render(row: Row, tokenizer: Tokenizer, template: Template = "auto") -> list[int]:
    """Token ids of the prompt: one user turn of the chat template, or the plain text.

    ``auto`` takes the template where there is one. Special tokens come once: a template writes its own, and a plain
    text must not end with EOS. Raises TaskError where a template is wanted and missing, or refuses the turn.
    """
    there = bool(getattr(tokenizer, "chat_template", None))
    if template == "chat" and not there:
        what = "the model's tokenizer has no chat template"
        raise TaskError(what, where="task.template", fix="write plain, or take the instruction-tuned model")
    if there and template != "plain":
        turns = [{"role": "user", "content": row.prompt}]
        try:
            text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program and may raise anything
            what = f"the model's chat template refuses a user's turn ({type(error).__name__}: {error})"
            raise TaskError(what[:500], where="task.template", fix="write plain, or mend the template") from error
        return list(tokenizer.encode(text, add_special_tokens=False))
    bos = getattr(tokenizer, "bos_token", None)
    doubled = bos is not None and row.prompt.startswith(bos)
    return _without_end(list(tokenizer.encode(row.prompt, add_special_tokens=not doubled)), tokenizer)


def _without_end(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    end = getattr(tokenizer, "eos_token_id", None)
    return list(ids[:-1]) if len(ids) > 1 and ids[-1] == end else list(ids)
