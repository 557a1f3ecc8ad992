"""The gradient of one minibatch under a policy-gradient objective, and what is measured on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hpcjf.training.distributed import share, summed
from hpcjf.training.learner import Learner, at_start
from hpcjf.training.objectives.aggregate import weighted_sum
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.policy_loss import policy_loss
from hpcjf.training.objectives.table import PolicyGradient
from hpcjf.training.objectives.value import value_loss
from hpcjf.training.optimiser import moves
from hpcjf.training.pieces import Piece, pieces
from hpcjf.training.rollout import Rollout
from hpcjf.training.targets import Targets


@dataclass
class Tally:
    """Sums over the tokens that entered the loss of one global step, and figures of each update."""

    tokens: int = 0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    value_loss: float = 0.0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def add_up(self) -> None:
        """Over the processes that share a batch."""
        sums = (self.tokens, self.kl, self.entropy, self.clipped, self.value_loss)
        tokens, self.kl, self.entropy, self.clipped, self.value_loss = summed(sums)
        self.tokens = int(tokens)

    def per_token(self, total: float) -> float:
        """Mean per token; NaN without tokens, since 0/0 is no measurement."""
        return total / self.tokens if self.tokens else float("nan")

    def note(self, update: tuple[float, float] | None) -> bool:
        """Keep loss and gradient norm of an update, if there was one; whether it moved anything."""
        if update is None:
            return False
        self.losses.append(update[0])
        self.norms.append(update[1])
        return moves(update[1])

    def count(self, logprobs: Tensor, entropy: Tensor, counted: Tensor, reference: Tensor | None = None) -> None:
        """Add the tokens in ``counted``, all ``[b, R]``; without a reference no KL."""
        self.tokens += int(counted.sum())
        self.entropy += float(entropy[counted].double().sum())
        if reference is not None:
            self.kl += float(kl_estimate(logprobs.detach(), reference, counted, "k3")[counted].double().sum())


@dataclass(frozen=True)
class PolicyUpdate:
    """The minibatches of one ``rollout`` with their ``targets``."""

    learner: Learner
    objective: PolicyGradient
    rollout: Rollout
    targets: Targets
    micro_batch: int

    def gradient(self, groups: Sequence[int], tally: Tally, *, fresh: bool, start: bool) -> float | None:
        """Add the gradient of the minibatch ``groups`` to the parameters; its loss, None where no token is in it.

        ``fresh``: no update came after sampling, so the importance ratio is exactly 1 and the old log-probabilities
        are those of this very pass; later minibatches take those recorded at sampling. ``start``: the policy was never
        updated, so any difference to the reference is a fault (TrainingError).
        """
        width = len(self.rollout.completion_ids) // len(self.rollout.prompt_ids)
        if not bool(self.targets.counted[groups[0] * width : (groups[-1] + 1) * width].any()):
            return None
        parts = pieces(self.rollout, share(groups), self.micro_batch)
        seen = [piece for piece in parts if bool(piece.of(self.targets.counted).any())]
        return sum(self._piece(piece, tally, fresh=fresh, start=start) for piece in seen)

    def _piece(self, piece: Piece, tally: Tally, *, fresh: bool, start: bool) -> float:
        targets, critic = self.targets, self.objective.critic
        logprobs, entropy, values = self.learner.act(piece)
        counted, reference, scales = piece.of(targets.counted), piece.of(targets.reference), piece.of(targets.scales)
        if start:
            reference = at_start(logprobs, reference, counted)
        found = policy_loss(
            self.objective,
            logprobs,
            logprobs.detach() if fresh else piece.of(targets.sampled),
            piece.of(targets.gains),
            counted,
            scales,
            reference=reference,
            kl_scales=None if targets.kl_scales is None else piece.of(targets.kl_scales),
        )
        loss = found.total
        if critic and values is not None and targets.values is not None and targets.returns is not None:
            errors = value_loss(values, piece.of(targets.values), piece.of(targets.returns), counted, critic.clip)
            loss = loss + critic.coefficient * weighted_sum(errors, counted, scales)
            tally.value_loss += float(errors.detach()[counted].double().sum())
        loss.backward()  # type: ignore[no-untyped-call]
        tally.count(logprobs, entropy, counted, reference)
        tally.clipped += float(found.clipped.sum())
        return float(loss.detach())
