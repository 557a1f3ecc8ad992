"""The part of training that imitates: the references of the training rows as responses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hpcjf.errors import TrainingError
from hpcjf.study import AlgorithmSection
from hpcjf.tasks.base import Row
from hpcjf.training.distributed import share
from hpcjf.training.drawing import Render
from hpcjf.training.learner import Learner
from hpcjf.training.objectives.aggregate import response_scales
from hpcjf.training.objectives.supervised import sft_loss
from hpcjf.training.optimiser import Group, Optimiser
from hpcjf.training.order import batch_indices
from hpcjf.training.pieces import pieces
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout, left_padded
from hpcjf.training.update import Tally


class Demonstrations:
    """The first reference of each row, or with ``every`` all of them, in batches of ``size``.

    A demonstration ends with the tokenizer's end-of-sequence token and is cut at ``max_tokens``. Which ones batch
    number n holds is a function of (``seed``, n). Raises TrainingError where no row has a reference.
    """

    def __init__(
        self, policy: Policy, rows: Sequence[Row], render: Render, *, every: bool, size: int, max_tokens: int, seed: int
    ) -> None:
        self._policy, self._render, self._size, self._limit, self._seed = policy, render, size, max_tokens, seed
        self._examples = [(row, text) for row in rows for text in row.references[: None if every else 1]]
        if not self._examples:
            raise TrainingError("no training row has a reference to imitate", fix="take pipeline rl, or other data")

    def batch(self, number: int) -> Rollout:
        """One completion per prompt; log-probabilities at sampling are 0, since there was none."""
        places = batch_indices(len(self._examples), self._seed, number, self._size, "demonstrations")
        chosen = [self._examples[i] for i in places]
        policy = self._policy
        rendered = [self._render(row, policy.tokenizer) for row, _ in chosen]
        prompts, mask = left_padded(rendered, policy.pad_id, policy.device)
        whole = [self._tokens(text) for _, text in chosen]
        responses = [ids[: self._limit] for ids in whole]
        width = max(map(len, responses))
        ids = [response + [policy.pad_id] * (width - len(response)) for response in responses]
        lengths = torch.tensor([len(response) for response in responses], device=policy.device)
        return Rollout(
            prompts,
            mask,
            torch.tensor(ids, device=policy.device),
            torch.arange(width, device=policy.device) < lengths.unsqueeze(1),
            torch.zeros(len(ids), width, device=policy.device),
            torch.tensor([len(one) > self._limit for one in whole], device=policy.device),
        )

    def _tokens(self, text: str) -> list[int]:
        tokenizer = self._policy.tokenizer
        end = self._policy.eos_ids[:1] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return [*ids, *end]


class Supervision:
    """The part of training that imitates. ``every``: all references of a row; ``horizon`` counts the global steps that
    its learning rate's schedule covers."""

    def __init__(
        self,
        policy: Policy,
        algorithm: AlgorithmSection,
        rows: Sequence[Row],
        render: Render,
        seed: int,
        horizon: int,
    ) -> None:
        self._demonstrations = Demonstrations(
            policy,
            rows,
            render,
            every=algorithm.pipeline == "sft_gold",
            size=algorithm.sft_batch,
            max_tokens=algorithm.max_new_tokens,
            seed=seed,
        )
        self._learner, self._micro_batch = Learner(policy), algorithm.micro_batch
        self.optimiser = Optimiser([Group(policy.parameters())], algorithm.sft_learning_rate, horizon, algorithm)

    def update(self, number: int, tally: Tally, *, start: bool) -> bool:
        """Learn batch ``number``; whether anything moved. ``start``: the policy was never updated."""
        batch = self._demonstrations.batch(number)
        return tally.note(self.optimiser.update(lambda: self._gradient(batch, tally), check=start))

    def _gradient(self, batch: Rollout, tally: Tally) -> float:
        """That of the mean next-token loss over all response tokens of ``batch``, at temperature 1."""
        scales = response_scales(batch.completion_mask.sum(1), "token_mean")
        total = 0.0
        for piece in pieces(batch, share(range(len(batch.prompt_ids))), self._micro_batch):
            logprobs, entropy, _ = self._learner.act(piece)
            loss = sft_loss(logprobs, piece.attended, piece.of(scales))
            loss.backward()  # type: ignore[no-untyped-call]
            tally.count(logprobs, entropy, piece.attended)
            total += float(loss.detach())
        return total


def supervised_metrics(tally: Tally) -> dict[str, float]:
    """Of a global step without sampling; reward, KL and responses are not measured in it."""
    tally.add_up()
    unknown = ("kl", "reward_mean", "reward_std", "clip_fraction", "zero_variance_fraction", "response_length")
    return dict.fromkeys((*unknown, "truncated_fraction"), math.nan) | {
        "reward_nonfinite": 0.0,
        "entropy": tally.per_token(tally.entropy),
        "loss": tally.losses[0],
        "grad_norm": tally.norms[0],
        "tokens": float(tally.tokens),
    }
