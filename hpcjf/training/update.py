"""The gradient of one piece of a minibatch, and what is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcjf.training.learner import Learner, at_start
from hpcjf.training.objectives.aggregate import weighted_sum
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.policy_loss import policy_loss
from hpcjf.training.objectives.value import value_loss
from hpcjf.training.pieces import Piece
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

    def per_token(self, total: float) -> float:
        """Mean per token; NaN without tokens, since 0/0 is no measurement."""
        return total / self.tokens if self.tokens else float("nan")


def accumulate(learner: Learner, piece: Piece, targets: Targets, tally: Tally, *, fresh: bool, start: bool) -> float:
    """Add the gradient of ``piece`` to the parameters; returns its share of the minibatch's loss.

    ``fresh``: no update came after sampling, so the importance ratio is exactly 1 and the old log-probabilities are
    this very pass; later minibatches take those recorded at sampling. ``start``: the policy was never updated, so any
    difference to the reference is a fault (TrainingError).
    """
    logprobs, entropy, values = learner.act(piece)
    counted, reference, scales = piece.of(targets.counted), piece.of(targets.reference), piece.of(targets.scales)
    if start:
        reference = at_start(logprobs, reference, counted)
    found = policy_loss(
        learner.objective,
        logprobs,
        logprobs.detach() if fresh else piece.of(targets.sampled),
        piece.of(targets.gains),
        counted,
        scales,
        reference=reference,
        kl_scales=None if targets.kl_scales is None else piece.of(targets.kl_scales),
    )
    loss, critic = found.total, learner.objective.critic
    if critic and values is not None and targets.values is not None and targets.returns is not None:
        errors = value_loss(values, piece.of(targets.values), piece.of(targets.returns), counted, critic.clip)
        loss = loss + critic.coefficient * weighted_sum(errors, counted, scales)
        tally.value_loss += float(errors.detach()[counted].double().sum())
    loss.backward()  # type: ignore[no-untyped-call]
    kl = kl_estimate(logprobs.detach(), reference, counted, "k3")
    tally.tokens += int(counted.sum())
    tally.kl += float(kl[counted].double().sum())
    tally.entropy += float(entropy[counted].double().sum())
    tally.clipped += float(found.clipped.sum())
    return float(loss.detach())
