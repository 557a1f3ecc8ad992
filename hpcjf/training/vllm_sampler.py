"""Sampling by vLLM in place of :func:`hpcjf.training.rollout.sample`.

Not yet run against vLLM itself: the tests have a stand-in with its interface (LLM, SamplingParams, outputs). One
process only. The engine's own log-probabilities are not exactly the trained policy's; those of a :class:`Rollout` come
from a pass of the policy. A trial need not repeat bit for bit: draws depend on the engine's batching.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hpcjf.errors import ModelError, StudyError
from hpcjf.study import AlgorithmSection
from hpcjf.training.distributed import processes
from hpcjf.training.learner import Learner
from hpcjf.training.pieces import pieces
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout, left_padded


class VllmSampler:
    """An engine beside the policy on its GPU, with ``algorithm.vllm_memory`` of the memory.

    Raises ModelError without vLLM, StudyError in a trial of several processes.
    """

    def __init__(self, policy: Policy, algorithm: AlgorithmSection) -> None:
        if processes() > 1:
            raise StudyError("vllm samples in one process only", where="algorithm.sampler", fix="use transformers")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the weights are set within this process
        try:
            import vllm
        except ImportError as error:
            what = f"vLLM cannot be imported ({error})"
            raise ModelError(what, where="algorithm.sampler", fix="pip install hpcjf[vllm]") from error
        self._vllm: Any = vllm
        self._policy, self._algorithm = policy, algorithm
        dtype = "bfloat16" if policy.autocast else str(policy.model.dtype).removeprefix("torch.")
        self._engine: Any = vllm.LLM(
            model=policy.model.name_or_path, dtype=dtype, gpu_memory_utilization=algorithm.vllm_memory
        )

    def sample(self, prompts: Sequence[Sequence[int]], generator: torch.Generator) -> Rollout:
        """``algorithm.rollouts`` completions per prompt (token ids), by the policy as it stands."""
        self._synchronise()
        settings = self._algorithm
        group, limit = settings.rollouts, settings.max_new_tokens
        prompt_ids, prompt_mask = left_padded(prompts, self._policy.pad_id, self._policy.device)
        seeds = torch.randint(2**31, (len(prompts) * group,), generator=generator).tolist()
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts for _ in range(group)]
        wishes = [self._wish(seed, limit) for seed in seeds]
        outputs = self._engine.generate(inputs, wishes, use_tqdm=False)
        rows = [list(output.outputs[0].token_ids) for output in outputs]
        width, pad = max(map(len, rows)), self._policy.pad_id
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self._policy.device)
        lengths = torch.tensor([len(row) for row in rows], device=ids.device)
        mask = torch.arange(width, device=ids.device) < lengths.unsqueeze(1)
        truncated = torch.tensor([row[-1] not in self._policy.eos_ids for row in rows], device=ids.device)
        logprobs = torch.zeros(ids.shape, device=ids.device)
        return self._scored(Rollout(prompt_ids, prompt_mask, ids, mask, logprobs, truncated))

    def _wish(self, seed: int, limit: int) -> Any:
        return self._vllm.SamplingParams(
            temperature=self._algorithm.temperature,
            top_p=1.0,
            top_k=-1,
            max_tokens=limit,
            stop_token_ids=list(self._policy.eos_ids),
            seed=seed,
            detokenize=False,
        )

    @torch.no_grad()
    def _scored(self, rollout: Rollout) -> Rollout:
        learner = Learner(self._policy, self._algorithm.temperature)
        for piece in pieces(rollout, range(len(rollout.prompt_ids)), self._algorithm.micro_batch):
            piece.of(rollout.logprobs).copy_(torch.where(piece.attended, learner.act(piece).logprobs, 0.0))
        return rollout

    def _synchronise(self) -> None:
        network = self._engine.llm_engine.model_executor.driver_worker.model_runner.model
        network.load_weights(_weights(self._policy.model))
        self._engine.reset_prefix_cache()


@torch.no_grad()
def _weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Names as in the model's folder; adapters are added to a copy, as taking them off again would leave rounding."""
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            continue
        place = name.split(".base_layer.")
        layer = model.get_submodule(place[0]) if len(place) == 2 else None
        if layer is not None and place[1] == "weight":
            weight = weight + sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
        yield ".".join(place), weight.detach()
