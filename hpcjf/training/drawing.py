"""The completions of one global step with their rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcjf.study import AlgorithmSection
from hpcjf.tasks.base import Row
from hpcjf.training import rollout as rollouts
from hpcjf.training.judge import Judge
from hpcjf.training.objectives.advantages import groups_with_signal
from hpcjf.training.order import draw_indices, stream_seed
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout
from hpcjf.training.vllm_sampler import VllmSampler

Render = Callable[[Row, Any], list[int]]
Rewards = list[float | None]
_SAMPLING_FACTOR = 8  # completions per sampling batch over ``micro_batch``: no activations are kept there


@dataclass(frozen=True)
class Drawing:
    """``max_redraws`` 0 draws each step's prompts once."""

    policy: Policy
    algorithm: AlgorithmSection
    rows: Sequence[Row]
    judge: Judge
    render: Render
    seed: int
    max_redraws: int
    engine: VllmSampler | None = None

    def draw(self, step: int) -> tuple[Rollout, Rewards, int]:
        """All completions of the step with their rewards, and the number of further draws: with dynamic sampling there
        are some until enough groups carry a signal (DAPO), ``max_redraws`` at most."""
        size, group = self.algorithm.prompts_per_step, self.algorithm.rollouts
        prompts: list[list[int]] = []
        parts: list[Rollout] = []
        rewards: Rewards = []
        for redraw in range(1 + self.max_redraws):
            rows = [self.rows[i] for i in draw_indices(len(self.rows), self.seed, step, redraw, size)]
            new = [self.render(row, self.policy.tokenizer) for row in rows]
            parts.append(self._sample(new, step, redraw))
            prompts += new
            texts = rollouts.texts(self.policy, parts[-1])
            rewards += self.judge([row for row in rows for _ in range(group)], texts)
            if len(groups_with_signal(rewards, group)) >= size:
                break
        return rollouts.joined(self.policy, prompts, parts), rewards, redraw

    def with_signal(self, drawn: Rollout, rewards: Sequence[float | None]) -> tuple[Rollout, Rewards]:
        """The first groups that carry a signal, as many as a step has prompts; without any, the first draw."""
        size, group = self.algorithm.prompts_per_step, self.algorithm.rollouts
        groups = groups_with_signal(rewards, group)[:size] or list(range(size))
        return rollouts.take(drawn, groups), [rewards[i * group + j] for i in groups for j in range(group)]

    def _sample(self, prompts: Sequence[Sequence[int]], step: int, redraw: int) -> Rollout:
        algorithm, seed = self.algorithm, stream_seed(self.seed, step, redraw)
        if self.engine:
            return self.engine.sample(
                prompts,
                group=algorithm.rollouts,
                max_new_tokens=algorithm.max_new_tokens,
                temperature=algorithm.temperature,
                seed=seed,
                micro_batch=max(1, algorithm.micro_batch // algorithm.rollouts),
            )
        return rollouts.sample(
            self.policy,
            prompts,
            group=algorithm.rollouts,
            max_new_tokens=algorithm.max_new_tokens,
            temperature=algorithm.temperature,
            generator=torch.Generator().manual_seed(seed),
            batch=algorithm.micro_batch * _SAMPLING_FACTOR,
        )
