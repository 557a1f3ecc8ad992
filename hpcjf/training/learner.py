"""What learns: the policy, and with a critic the value head on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpcjf.errors import TrainingError
from hpcjf.training.forward import completion_logits, completion_outputs
from hpcjf.training.objectives.logprobs import logprobs_and_entropy, token_logprobs
from hpcjf.training.pieces import Piece
from hpcjf.training.policy import Policy

_TOLERANCE = 1e-5  # nats; two passes of one model may differ by rounding


class ValueHead(nn.Module):
    """A linear map from the policy's last hidden states ``[B, R, H]``, each before its token, to values ``[B, R]``.

    In float32, and 0 everywhere at the start. Its gradient goes on into the policy.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.linear = nn.Linear(policy.model.get_output_embeddings().in_features, 1, device=policy.device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        values: Tensor = self.linear(states.float()).squeeze(-1)
        return values


class Pass(NamedTuple):
    """Log-probabilities, entropies and values (None without a critic) of a piece's tokens, all ``[b, R]``."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None


@dataclass(frozen=True)
class Learner:
    """``head`` is there where the objective has a critic; log-probabilities are at ``temperature``."""

    policy: Policy
    temperature: float = 1.0
    head: ValueHead | None = None

    def act(self, piece: Piece) -> Pass:
        """The policy as it stands."""
        arguments = (self.policy.model, piece.prompt, piece.prompt_mask, piece.ids, piece.attended)
        states = None
        with self.policy.precision():
            if self.head is None:
                logits = completion_logits(*arguments)
            else:
                logits, states = completion_outputs(*arguments)
        values = None if self.head is None or states is None else self.head(states)
        return Pass(*logprobs_and_entropy(logits, piece.ids, self.temperature), values)

    def reference(self, piece: Piece) -> Tensor:
        """Log-probabilities ``[b, R]`` under the reference policy."""
        with self.policy.precision(), self.policy.reference() as model:
            logits = completion_logits(model, piece.prompt, piece.prompt_mask, piece.ids, piece.attended)
            return token_logprobs(logits, piece.ids, self.temperature)


def at_start(logprobs: Tensor, reference: Tensor, counted: Tensor) -> Tensor:
    """The reference's log-probabilities before the first update: the policy's own, so that the KL is 0 exactly.

    All ``[b, R]``. Raises TrainingError where ``reference`` is off by more than rounding in the bool ``counted``.
    """
    logprobs = logprobs.detach()
    off = float(torch.where(counted, (logprobs - reference).abs(), 0.0).max())
    if not off <= _TOLERANCE:
        raise TrainingError(
            f"KL to the reference is not 0 before the first update: log-probabilities differ by up to {off:.3g} nats",
            fix="policy and reference must be the same model, without dropout",
        )
    return logprobs
