"""What a model can do: its greedy responses, how many of many samples are right, which answer it holds likeliest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hpcjf.tasks.base import Row
from hpcjf.tasks.choices import Question
from hpcjf.tasks.prompts import render
from hpcjf.training import rollout as rollouts
from hpcjf.training.distributed import gathered, share
from hpcjf.training.forward import completion_logits
from hpcjf.training.objectives.logprobs import response_logprobs, token_logprobs
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import left_padded

_RIGHT = 1.0 - 1e-9
"""Reward from which on a sample is right."""
_SEED = 20_260_604
_BATCH = 256  # completions at a time
Judge = Callable[[Sequence[Row], Sequence[str]], Sequence[float | None]]


def greedy_texts(policy: Policy, prompts: Sequence[Sequence[int]], batch: int, max_new_tokens: int) -> list[str]:
    """The greedy completion of each prompt, ``batch`` of like length at a time."""
    return gathered(_greedy(policy, share(prompts), batch, max_new_tokens))


def _greedy(policy: Policy, prompts: Sequence[Sequence[int]], batch: int, max_new_tokens: int) -> list[str]:
    found = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        drawn = rollouts.greedy(policy, [prompts[i] for i in part], max_new_tokens=max_new_tokens)
        for i, text in zip(part, rollouts.texts(policy, drawn), strict=True):
            found[i] = text
    return found


def right_samples(
    policy: Policy,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    judge: Judge,
    *,
    samples: int,
    temperature: float,
    max_new_tokens: int,
) -> list[int]:
    """How many of ``samples`` responses to each row earn the full reward, always of the same random numbers."""
    drawn = rollouts.sample(
        policy,
        prompts,
        group=samples,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        generator=torch.Generator().manual_seed(_SEED),
        batch=_BATCH,
    )
    rewards = judge([row for row in rows for _ in range(samples)], rollouts.texts(policy, drawn))
    right = [reward is not None and reward >= _RIGHT for reward in rewards]
    return [sum(right[i : i + samples]) for i in range(0, len(right), samples)]


def forced_choices(
    policy: Policy, prompts: Sequence[Sequence[int]], choices: Sequence[Sequence[str]], *, per_byte: bool = False
) -> list[int]:
    """Place of the likeliest of each prompt's ``choices``: largest log-probability of its tokens, with ``per_byte``
    over its length in bytes of UTF-8 (acc and acc_norm of lm-evaluation-harness). The first of equal ones."""
    return gathered(_likeliest(policy, share(prompts), share(choices), per_byte=per_byte))


def _likeliest(
    policy: Policy, prompts: Sequence[Sequence[int]], choices: Sequence[Sequence[str]], *, per_byte: bool
) -> list[int]:
    tokens = [[policy.tokenizer.encode(text, add_special_tokens=False) for text in each] for each in choices]
    order = sorted(range(len(prompts)), key=lambda i: (len(choices[i]), len(prompts[i])))
    found = [0] * len(prompts)
    while order:
        count = len(choices[order[0]])
        part = [i for i in order[: max(1, _BATCH // count)] if len(choices[i]) == count]
        order = order[len(part) :]
        totals = _logprobs(policy, [prompts[i] for i in part], [ids for i in part for ids in tokens[i]])
        for i, values in zip(part, totals.view(-1, count).tolist(), strict=True):
            sizes = [len(text.encode()) if per_byte else 1 for text in choices[i]]
            scores = [value / size for value, size in zip(values, sizes, strict=True)]
            found[i] = max(range(count), key=scores.__getitem__)
    return found


def right_choices(policy: Policy, questions: Sequence[Question]) -> list[float]:
    """1 for each question whose right choice is the likeliest per byte. Question and choice are joined as they are, as
    plain text."""
    prompts = [render(Row.of(question.text, (), "choices"), policy.tokenizer, "plain") for question in questions]
    found = forced_choices(policy, prompts, [question.choices for question in questions], per_byte=True)
    return [float(place == question.answer) for place, question in zip(found, questions, strict=True)]


@torch.no_grad()
def _logprobs(policy: Policy, prompts: Sequence[Sequence[int]], choices: Sequence[Sequence[int]]) -> Tensor:
    """Of each choice's tokens after its prompt, ``[C]``; as many for each prompt, one prompt's after the other's."""
    prompt_ids, prompt_mask = left_padded(prompts, policy.pad_id, policy.device)
    width = max(map(len, choices))
    ids = torch.tensor([[*each, *[policy.pad_id] * (width - len(each))] for each in choices], device=policy.device)
    lengths = torch.tensor([len(each) for each in choices], device=policy.device)
    mask = torch.arange(width, device=policy.device) < lengths.unsqueeze(1)
    with policy.precision():
        logits = completion_logits(policy.model, prompt_ids, prompt_mask, ids, mask)
    return response_logprobs(token_logprobs(logits, ids, 1.0), mask)
