"""The gradient of one minibatch under an objective on preferences, the best of a prompt's responses against the worst.

The pairs are the policy's own, drawn anew in every step and judged by the reward (as in online DPO, arXiv 2402.04792);
groups whose finite rewards are all equal give none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hpcjf.training.distributed import gathered, share
from hpcjf.training.learner import Learner, at_start
from hpcjf.training.objectives.advantages import finite
from hpcjf.training.objectives.logprobs import response_logprobs
from hpcjf.training.objectives.preference import dpo_loss, kto_kl, kto_loss, simpo_loss
from hpcjf.training.objectives.table import Preference
from hpcjf.training.pieces import Piece, pieces
from hpcjf.training.rollout import Rollout, take
from hpcjf.training.update import Tally


@dataclass(frozen=True)
class PreferenceUpdate:
    """Pairs of one rollout: ``places`` are the groups that gave one, in order. Completion 2i of ``rollout`` is the
    better and 2i + 1 the worse one of pair i. ``margins`` collects what the policy made of each pair."""

    learner: Learner
    objective: Preference
    rollout: Rollout
    places: Sequence[int]
    micro_batch: int
    margins: list[float] = field(default_factory=list)

    def gradient(self, groups: Sequence[int], tally: Tally, *, fresh: bool, start: bool) -> float | None:
        """Add the gradient of the minibatch ``groups`` to the parameters; its loss, None where no group gave a pair.

        ``start``: the policy was never updated, so any difference to the reference is a fault (TrainingError).
        """
        own = [pair for pair, group in enumerate(self.places) if group in groups]
        if not own:
            return None
        shift = 0.0 if self.objective.paired else self._shift(own)
        parts = pieces(self.rollout, share(own), max(2, self.micro_batch))
        return sum(self._piece(piece, len(own), shift, tally, start=start) for piece in parts)

    @property
    def metrics(self) -> dict[str, float]:
        """For the trace, after the last minibatch."""
        margins = gathered(self.margins)
        count = len(margins)
        mean = sum(margins) / count if count else math.nan
        right = sum(margin > 0 for margin in margins) / count if count else math.nan
        return {"pairs": float(len(self.places)), "margin": mean, "margin_accuracy": right, "clip_fraction": math.nan}

    def _piece(self, piece: Piece, pairs: int, shift: float, tally: Tally, *, start: bool) -> float:
        reference = self.learner.reference(piece)
        logprobs, entropy, _ = self.learner.act(piece)
        if start:
            reference = at_start(logprobs, reference, piece.attended)
        policy, base = (_of_responses(self.objective, each, piece.attended) for each in (logprobs, reference))
        beta = self.objective.beta
        if not self.objective.paired:
            better = torch.arange(len(policy), device=policy.device) % 2 == 0
            losses, rewards = kto_loss(policy, base, better, shift, beta)
            losses, margins = losses / 2, rewards[::2] - rewards[1::2]
        elif self.objective.reference:
            losses, margins = dpo_loss(policy[::2], policy[1::2], base[::2], base[1::2], beta)
        else:
            losses, margins = simpo_loss(policy[::2], policy[1::2], beta, self.objective.margin)
        loss = losses.sum() / pairs
        loss.backward()  # type: ignore[no-untyped-call]
        tally.count(logprobs, entropy, piece.attended, reference)
        self.margins.extend(margins.tolist())
        return float(loss.detach())

    @torch.no_grad()
    def _shift(self, pairs: Sequence[int]) -> float:
        """KTO's z, from each prompt with the responses of the prompt before it; 0 for a single prompt."""
        if len(pairs) < 2:
            return 0.0
        own = take(self.rollout, pairs)
        foreign = replace(own, prompt_ids=own.prompt_ids.roll(-1, 0), prompt_mask=own.prompt_mask.roll(-1, 0))
        ratios = []
        for piece in pieces(foreign, range(len(pairs)), self.micro_batch):
            policy, base = self.learner.act(piece).logprobs, self.learner.reference(piece)
            ratios.append([response_logprobs(each, piece.attended) for each in (policy, base)])
        policy, base = (torch.cat(each) for each in zip(*ratios, strict=True))
        return kto_kl(policy, base)


def prefer(
    learner: Learner, objective: Preference, rollout: Rollout, rewards: Sequence[float | None], micro_batch: int
) -> PreferenceUpdate:
    """Of each group of ``rollout`` the first of the best and the first of the worst by ``rewards`` ``[B]``."""
    group = len(rollout.completion_ids) // len(rollout.prompt_ids)
    values = finite(rewards)
    places, rows = [], []
    for place in range(len(rollout.prompt_ids)):
        known = [row for row in range(place * group, (place + 1) * group) if not math.isnan(values[row])]
        best, worst = (pick(known, key=values.__getitem__, default=0) for pick in (max, min))
        if values[best] > values[worst]:
            places.append(place)
            rows += [best, worst]
    return PreferenceUpdate(learner, objective, take(rollout, places, rows), places, micro_batch)


def _of_responses(objective: Preference, logprobs: Tensor, mask: Tensor) -> Tensor:
    return response_logprobs(logprobs, mask, mean=not objective.reference)
