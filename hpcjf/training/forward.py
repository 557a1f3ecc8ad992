"""Forward passes over prompt groups: the prompt runs once per group, its cache is shared by the completions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def prefill(model: Any, ids: Tensor, mask: Tensor, copies: int) -> tuple[Tensor, Any]:
    """Run prompts ``ids`` ``[P, T]`` (left-padded, ``mask`` bool ``[P, T]``) once and repeat the result.

    Returns the logits after the prompt ``[P * copies, V]`` and a cache of ``P * copies`` rows. Gradients flow
    through both.
    """
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    logits = call(model, ids, None if bool(mask.all()) else mask, positions, cache, keep=1)[:, -1]
    if copies > 1:
        cache.batch_repeat_interleave(copies)
        logits = logits.repeat_interleave(copies, 0)
    return logits, cache


def call(model: Any, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: Any, *, keep: int = 0) -> Tensor:
    """Logits of ``ids`` ``[B, S]`` appended to ``cache``; ``mask`` covers cache and ids, None means all ones.

    ``keep`` > 0 returns the last ``keep`` positions only.
    """
    logits: Tensor = model(
        input_ids=ids,
        attention_mask=None if mask is None else mask.long(),
        position_ids=positions,
        use_cache=True,
        logits_to_keep=keep,
        **{_cache_argument(type(model).forward): cache},
    ).logits
    return logits


def completion_logits(model: Any, prompt: Tensor, prompt_mask: Tensor, completion: Tensor, mask: Tensor) -> Tensor:
    """Logits ``[B, R, V]``, float32, that predict each token of ``completion`` ``[B, R]``.

    ``prompt`` is ``[P, T]`` with B a multiple of P: rows ``g * B/P`` … of the completions belong to prompt ``g``.
    Masks are bool. The last token's own forward pass predicts nothing and is left out.
    """
    copies = completion.shape[0] // prompt.shape[0]
    if recomputes(model):
        return _checkpointed(model, prompt, prompt_mask, completion, mask, copies)
    first, cache = prefill(model, prompt, prompt_mask, copies)
    logits = first.unsqueeze(1)
    if completion.shape[1] > 1:
        before = prompt_mask.repeat_interleave(copies, 0)
        seen = None if bool(prompt_mask.all()) else torch.cat([before, mask[:, :-1]], 1)
        steps = torch.arange(completion.shape[1] - 1, device=completion.device)
        positions = before.sum(1, keepdim=True) + steps
        logits = torch.cat([logits, call(model, completion[:, :-1], seen, positions, cache)], 1)
    return logits.float()


def recomputes(model: Any) -> bool:
    """Whether gradient checkpointing is on; its name changed within transformers 5."""
    new = getattr(type(model), "is_activation_checkpointing", None)
    return bool(model.is_gradient_checkpointing if new is None else model.is_activation_checkpointing)


def _checkpointed(
    model: Any, prompt: Tensor, prompt_mask: Tensor, completion: Tensor, mask: Tensor, copies: int
) -> Tensor:
    """Every prompt with each of its completions and without a cache: only so transformers computes layers again.

    The reference takes this way too, so that its rounding is the policy's.
    """
    ids = torch.cat([prompt.repeat_interleave(copies, 0), completion[:, :-1]], 1)
    seen = torch.cat([prompt_mask.repeat_interleave(copies, 0), mask[:, :-1]], 1)
    positions = (seen.cumsum(1) - 1).clamp_min(0)
    model.train()  # which it asks for too; a model with dropout fails the check of the KL before the first update
    try:
        logits: Tensor = model(
            input_ids=ids,
            attention_mask=seen.long(),
            position_ids=positions,
            use_cache=False,
            logits_to_keep=completion.shape[1],
        ).logits
    finally:
        model.eval()
    return logits.float()


def completion_outputs(
    model: Any, prompt: Tensor, prompt_mask: Tensor, completion: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """:func:`completion_logits` and the last hidden states that gave them, ``[B, R, H]``, in the model's dtype."""
    seen: list[Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    try:
        logits = completion_logits(model, prompt, prompt_mask, completion, mask)
    finally:
        hook.remove()
    return logits, torch.cat([states.repeat_interleave(len(completion) // len(states), 0) for states in seen], 1)


@functools.cache
def _cache_argument(forward: Callable[..., Any]) -> str:
    """The argument's name changed within transformers 5."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"
