"""The part of training that samples: completions, their rewards, and updates under the chosen objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcjf.study import AlgorithmSection
from hpcjf.tasks.base import Row
from hpcjf.training.drawing import Drawing, Render, Rewards
from hpcjf.training.judge import Judge
from hpcjf.training.learner import Learner, ValueHead
from hpcjf.training.measures import step_metrics
from hpcjf.training.objectives.chosen import sampled_objective
from hpcjf.training.objectives.table import PolicyGradient
from hpcjf.training.optimiser import Group, Optimiser
from hpcjf.training.policy import Policy
from hpcjf.training.preferences import PreferenceUpdate, prefer
from hpcjf.training.rollout import Rollout
from hpcjf.training.targets import Plan, make_targets
from hpcjf.training.update import PolicyUpdate, Tally
from hpcjf.training.vllm_sampler import VllmSampler


@dataclass(frozen=True)
class Lesson:
    """What one global step trains on: ``update`` holds what the objective made of the batch, ``minibatches`` list
    its prompt groups. ``metrics`` are known before the first update."""

    drawn: Rollout
    rewards: Rewards
    update: PolicyUpdate | PreferenceUpdate
    minibatches: list[list[int]]
    metrics: dict[str, float]


class Reinforcement:
    """``horizon`` counts the global steps that its learning rate's schedule covers."""

    def __init__(
        self,
        policy: Policy,
        algorithm: AlgorithmSection,
        rows: Sequence[Row],
        judge: Judge,
        render: Render,
        seed: int,
        horizon: int,
    ) -> None:
        self._algorithm, self._objective = algorithm, sampled_objective(algorithm)
        gradient = self._objective if isinstance(self._objective, PolicyGradient) else None
        critic = gradient and gradient.critic
        redraws = gradient.max_redraws if gradient and gradient.dynamic_sampling else 0
        engine = VllmSampler(policy, policy.folder, algorithm.vllm_memory) if algorithm.sampler == "vllm" else None
        self._drawing = Drawing(policy, algorithm, rows, judge, render, seed, redraws, engine)
        self.head = ValueHead(policy) if critic else None
        self.learner = Learner(policy, algorithm.temperature, self.head)
        groups = [Group(policy.parameters())]
        if critic and self.head:
            groups.append(Group(list(self.head.parameters()), critic.rate_factor))
        self.optimiser = Optimiser(groups, algorithm.learning_rate, horizon, algorithm)
        self.level: float | None = None  # HARGO's running log-probability

    def lesson(self, step: int, *, start: bool) -> Lesson:
        """Draw the batch of global ``step``. ``start``: the policy was never updated."""
        drawn, rewards, redraws = self._drawing.draw(step)
        batch, kept, metrics = drawn, rewards, {}
        if self._drawing.max_redraws:
            batch, kept = self._drawing.with_signal(drawn, rewards)
            metrics = {"redraws": float(redraws), "groups": float(len(batch.prompt_ids))}
        parts = torch.arange(len(batch.prompt_ids)).tensor_split(self._algorithm.minibatches)
        minibatches = [groups.tolist() for groups in parts if len(groups)]
        micro = self._algorithm.micro_batch
        if not isinstance(self._objective, PolicyGradient):
            pairs = prefer(self.learner, self._objective, batch, kept, micro)
            return Lesson(drawn, rewards, pairs, minibatches, metrics)
        plan = Plan(minibatches, micro, self._algorithm.max_new_tokens, start, self.level)
        targets = make_targets(self.learner, self._objective, batch, kept, plan)
        self.level = targets.level
        update = PolicyUpdate(self.learner, self._objective, batch, targets, micro)
        return Lesson(drawn, rewards, update, minibatches, metrics | targets.metrics)

    def update(self, lesson: Lesson, groups: Sequence[int], tally: Tally, *, fresh: bool, start: bool) -> bool:
        """One minibatch; whether anything moved. ``fresh``: the policy is still the one that sampled."""
        made = self.optimiser.update(
            lambda: lesson.update.gradient(groups, tally, fresh=fresh, start=start), check=start
        )
        return tally.note(made)

    def metrics(self, lesson: Lesson, tally: Tally) -> dict[str, float]:
        """Of the global step, after its last update."""
        tally.add_up()
        found = step_metrics(lesson.drawn, lesson.rewards, tally) | lesson.metrics
        if isinstance(lesson.update, PreferenceUpdate):
            found |= lesson.update.metrics
        if self.head:
            found["value_loss"] = tally.per_token(tally.value_loss)
        return found

    def state(self) -> dict[str, Any]:
        head = self.head and self.head.state_dict()
        return {"optimiser": self.optimiser.state(), "level": self.level, "head": head}

    def restore(self, state: dict[str, Any]) -> None:
        """What :meth:`state` gave. Raises KeyError, ValueError, TypeError or RuntimeError where it does not fit."""
        self.optimiser.restore(state["optimiser"])
        self.level = state["level"]
        if self.head:
            self.head.load_state_dict(state["head"])
