"""Sampling by vLLM in this process, with the policy's weights of the moment.

The only tests of this module have a stand-in for vLLM's interface (LLM, SamplingParams): it was never run on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from hpcjf.errors import ModelError
from hpcjf.training.decode import merged_weights
from hpcjf.training.distributed import processes
from hpcjf.training.forward import completion_logits
from hpcjf.training.objectives.logprobs import token_logprobs
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout, left_padded


class VllmSampler:
    """``memory`` is the share of the GPU's memory that the engine may take. Raises ModelError without vLLM, and in a
    trial of several processes."""

    def __init__(self, policy: Policy, folder: Path, memory: float) -> None:
        if processes() > 1:
            fix = "set processes: 1, or take sampler: transformers"
            raise ModelError("vllm samples in trials of one process only", where="algorithm.sampler", fix=fix)
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine's weights are within reach only so
        try:
            import vllm
        except ImportError as error:
            fix = "pip install 'hpcjf[vllm]', or take sampler: transformers"
            raise ModelError("vllm is not installed", where="algorithm.sampler", fix=fix) from error
        self._policy, self._parameters = policy, vllm.SamplingParams
        self._engine = vllm.LLM(model=str(folder), gpu_memory_utilization=memory, enable_prefix_caching=True)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        micro_batch: int,
    ) -> Rollout:
        """As :func:`hpcjf.training.rollout.sample`, of other random numbers. Log-probabilities are those of the policy
        itself, ``micro_batch`` prompts at a time, since the engine's arithmetic is another."""
        self._load()
        options = {"n": group, "temperature": temperature, "max_tokens": max_new_tokens, "detokenize": False}
        stops = list(self._policy.eos_ids)
        asked = [
            self._parameters(seed=(seed + i) % 2**31, stop_token_ids=stops, **options) for i in range(len(prompts))
        ]
        answers = self._engine.generate([{"prompt_token_ids": list(ids)} for ids in prompts], asked, use_tqdm=False)
        drawn = [(list(each.token_ids), each.finish_reason) for answer in answers for each in answer.outputs]
        return self._rollout(prompts, [_ended(ids, reason, stops) for ids, reason in drawn], temperature, micro_batch)

    def _load(self) -> None:
        model = self._engine.llm_engine.model_executor.driver_worker.model_runner.model
        model.load_weights(_weights(self._policy))
        self._engine.reset_prefix_cache()

    @torch.no_grad()
    def _rollout(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[list[int]], temperature: float, size: int
    ) -> Rollout:
        policy = self._policy
        prompt_ids, prompt_mask = left_padded(prompts, policy.pad_id, policy.device)
        width = max(map(len, completions))
        padded = [ids + [policy.pad_id] * (width - len(ids)) for ids in completions]
        ids = torch.tensor(padded, device=policy.device)
        lengths = torch.tensor([len(each) for each in completions], device=policy.device)
        mask = torch.arange(width, device=policy.device) < lengths.unsqueeze(1)
        ends = torch.tensor(policy.eos_ids, dtype=torch.long, device=policy.device)
        ended = torch.isin(ids.gather(1, lengths.unsqueeze(1) - 1).squeeze(1), ends)
        group, parts = len(completions) // len(prompts), []
        for first in range(0, len(prompts), size):
            some, rows = slice(first, first + size), slice(first * group, (first + size) * group)
            with policy.precision():
                logits = completion_logits(policy.model, prompt_ids[some], prompt_mask[some], ids[rows], mask[rows])
            parts.append(token_logprobs(logits, ids[rows], temperature))
        return Rollout(prompt_ids, prompt_mask, ids, mask, torch.where(mask, torch.cat(parts), 0.0), ~ended)


def _ended(ids: list[int], reason: str, stops: Sequence[int]) -> list[int]:
    """With the token that stopped it, which some versions leave out."""
    return [*ids, stops[0]] if reason == "stop" and (not ids or ids[-1] not in stops) else ids


def _weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Names and values as a plain model has them: adapters are added to their layers, whose own weights stay."""
    added = merged_weights(policy.model)
    for name, tensor in policy.model.state_dict().items():
        if ".lora_" not in name:
            plain = name.replace(".base_layer", "")
            yield plain, added.get(plain, tensor)
