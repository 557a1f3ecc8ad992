"""Completions: batched sampling (and greedy decoding) with a key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from hpcjf.errors import TrainingError
from hpcjf.training.decode import decoder
from hpcjf.training.distributed import gathered, processes, share
from hpcjf.training.forward import prefill
from hpcjf.training.policy import Policy


@dataclass(frozen=True)
class Rollout:
    """P prompts with G completions each, B = P * G; completion row ``g * G + i`` belongs to prompt ``g``.

    ``completion_mask`` covers each completion up to and with its end-of-sequence token, once. ``logprobs`` are those
    of the distribution the tokens were drawn from (temperature applied), 0 beyond the mask. ``truncated`` marks
    completions that reached the length limit without such a token.
    """

    prompt_ids: Tensor  # [P, T], left-padded
    prompt_mask: Tensor  # [P, T] bool
    completion_ids: Tensor  # [B, R], right-padded
    completion_mask: Tensor  # [B, R] bool
    logprobs: Tensor  # [B, R] float32
    truncated: Tensor  # [B] bool

    def to(self, device: torch.device | str) -> Rollout:
        return Rollout(*(getattr(self, each.name).to(device) for each in fields(self)))


def sample(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    group: int,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator,
    batch: int,
) -> Rollout:
    """Draw ``group`` completions per prompt (token ids), at most about ``batch`` completions at a time.

    One uniform number (CPU ``generator``) belongs to each row and position, so that a draw depends neither on
    batching nor on which other rows have ended, nor on how many processes share the prompts.
    """
    noise = torch.rand(len(prompts) * group, max_new_tokens, generator=generator, dtype=torch.float64)
    size, own = max(1, batch // group), share(range(len(prompts)))
    parts = [
        _complete(
            policy, [prompts[i] for i in some], group, noise[some[0] * group : (some[-1] + 1) * group], temperature
        )
        for some in (own[i : i + size] for i in range(0, len(own), size))
    ]
    if processes() > 1:
        parts = [part.to(policy.device) for part in gathered([part.to("cpu") for part in parts])]
    return joined(policy, prompts, parts)


def greedy(policy: Policy, prompts: Sequence[Sequence[int]], *, max_new_tokens: int) -> Rollout:
    """The most probable token at each position; one batch, no randomness."""
    return _complete(policy, prompts, 1, torch.empty(len(prompts), max_new_tokens), None)


def texts(policy: Policy, rollout: Rollout) -> list[str]:
    """Completions as text, without special tokens."""
    rows = zip(rollout.completion_ids.tolist(), rollout.completion_mask.sum(1).tolist(), strict=True)
    ids = [row[:length] for row, length in rows]
    decoded: list[str] = policy.tokenizer.batch_decode(
        ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return decoded


def joined(policy: Policy, prompts: Sequence[Sequence[int]], parts: Sequence[Rollout]) -> Rollout:
    """``parts`` one after the other; ``prompts`` are those of all of them."""
    if len(parts) == 1:
        return parts[0]
    prompt_ids, prompt_mask = left_padded(prompts, policy.pad_id, policy.device)
    width = max(part.completion_ids.shape[1] for part in parts)

    def wide(name: str, fill: float) -> Tensor:
        rows = [getattr(part, name) for part in parts]
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1]), value=fill) for row in rows])

    truncated = torch.cat([part.truncated for part in parts])
    ids, mask = wide("completion_ids", policy.pad_id), wide("completion_mask", 0)
    return Rollout(prompt_ids, prompt_mask, ids, mask, wide("logprobs", 0.0), truncated)


def take(rollout: Rollout, groups: Sequence[int], rows: Sequence[int] | None = None) -> Rollout:
    """The rollout of these prompts alone, in this order, with all their completions or with ``rows``: as many for each
    prompt, one prompt's after the other's."""
    prompts = torch.tensor(groups, dtype=torch.long, device=rollout.prompt_ids.device)
    every = torch.arange(len(rollout.completion_ids), device=prompts.device).view(len(rollout.prompt_ids), -1)
    own = every[prompts].flatten() if rows is None else torch.tensor(rows, dtype=torch.long, device=prompts.device)
    return Rollout(
        rollout.prompt_ids[prompts],
        rollout.prompt_mask[prompts],
        rollout.completion_ids[own],
        rollout.completion_mask[own],
        rollout.logprobs[own],
        rollout.truncated[own],
    )


def left_padded(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and bool mask, both ``[P, T]``. Raises TrainingError for an empty prompt, which predicts nothing."""
    width = max(map(len, prompts))
    if not all(prompts):
        raise TrainingError("a prompt has no tokens", fix="remove empty prompts from the task's data")
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[False] * (width - len(prompt)) + [True] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


@torch.no_grad()
def _complete(
    policy: Policy, prompts: Sequence[Sequence[int]], group: int, noise: Tensor, temperature: float | None
) -> Rollout:
    """``noise`` ``[B, R]`` gives the length limit, and with a temperature the draws; None decodes greedily."""
    prompt_ids, prompt_mask = left_padded(prompts, policy.pad_id, policy.device)
    noise = noise.to(policy.device)
    size, limit = noise.shape
    ids = torch.full((size, limit), policy.pad_id, device=policy.device)
    logprobs = torch.zeros(size, limit, device=policy.device)
    lengths = torch.full((size,), limit, device=policy.device)
    ended = torch.zeros(size, dtype=torch.bool, device=policy.device)
    eos = torch.tensor(policy.eos_ids, dtype=torch.long, device=policy.device)
    active = torch.arange(size, device=policy.device)
    with policy.precision():
        logits, cache = prefill(policy.model, prompt_ids, prompt_mask, group)
        following = decoder(policy.model, cache, prompt_mask.repeat_interleave(group, 0), limit)
        for step in range(limit):
            token, logprob = _pick(logits.float(), noise[active, step], temperature)
            ids[active, step], logprobs[active, step] = token, logprob
            stop = torch.isin(token, eos)
            if bool(stop.any()):
                lengths[active[stop]], ended[active[stop]] = step + 1, True
                going = (~stop).nonzero().squeeze(1)
                active, token = active[going], token[going]
                if active.numel():
                    following.keep(going)
            if step + 1 == limit or not active.numel():
                break
            logits = following.step(token)
    width = int(lengths.max())
    mask = torch.arange(width, device=policy.device) < lengths.unsqueeze(1)
    return Rollout(prompt_ids, prompt_mask, ids[:, :width], mask, logprobs[:, :width], ~ended)


def _pick(logits: Tensor, noise: Tensor, temperature: float | None) -> tuple[Tensor, Tensor]:
    """Tokens ``[B]`` and their log-probabilities from ``logits`` ``[B, V]``, by inversion of the distribution."""
    logprobs = torch.log_softmax(logits if temperature is None else logits / temperature, -1)
    if temperature is None:
        token = logprobs.argmax(-1)
    else:
        # float64: a float32 sum over a large vocabulary would lose rare tokens; right=True skips probability 0
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        target = (noise.double() * cumulative[:, -1]).unsqueeze(1)
        token = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_max(logits.shape[-1] - 1)
    return token, logprobs.gather(1, token.unsqueeze(1)).squeeze(1)
