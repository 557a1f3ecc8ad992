"""GRPO post-training of one policy: rollouts, rewards, updates, evaluation, exact resume.

Where it leaves the paper's letter: the prompt of a group runs once per pass; completions without a finite reward are
left out of the loss; an update without gradient is not taken, since Adam's momentum would move the weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpcjf.errors import StudyError, TrainingError
from hpcjf.study import AlgorithmSection, ModelSection
from hpcjf.tasks.base import Row
from hpcjf.training import rollout as rollouts
from hpcjf.training.checkpoint import read_state, restore_streams, write_state
from hpcjf.training.objectives.advantages import Advantages, group_advantages
from hpcjf.training.order import batch_indices, stream_seed
from hpcjf.training.policy import load_policy
from hpcjf.training.schedule import rate_factor
from hpcjf.training.update import Tally, accumulate, pieces

Score = Callable[[Sequence[Row], Sequence[str]], Sequence[float | None]]
Render = Callable[[Row, Any], list[int]]
_SAMPLING_FACTOR = 8  # completions per sampling batch over ``micro_batch``: no activations are kept there
_RESUMABLE = frozenset({"eval_every", "eval_batch", "micro_batch"})  # settings that a resumed run may change


class Trainer:
    """One policy on its way from step 0 to ``horizon`` global steps.

    ``algorithm`` already holds the trial's hyperparameters. Data order is a function of (``seed``, epoch, position),
    sampling one of (``seed``, step) and the weights. ``render`` gives a row's prompt as token ids. ``score`` gives a
    reward per row and completion; None, NaN and infinities are counted and kept away from the optimiser.
    """

    def __init__(
        self,
        model: ModelSection,
        model_path: Path,
        algorithm: AlgorithmSection,
        train_rows: Sequence[Row],
        score: Score,
        horizon: int,
        seed: int,
        render: Render,
    ) -> None:
        if algorithm.minibatches > algorithm.prompts_per_step:
            raise StudyError("minibatches exceeds prompts_per_step", where="algorithm", fix="lower minibatches")
        if not train_rows:
            raise TrainingError("there are no training rows", fix="check the task's data")
        _make_deterministic()
        self.step = 0
        self.algorithm, self.horizon, self.seed = algorithm, horizon, seed
        self._rows, self._score, self._render = train_rows, score, render
        self._policy = load_policy(model, model_path, seed=seed)
        self._parameters = self._policy.parameters()
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=algorithm.learning_rate, weight_decay=algorithm.weight_decay, fused=True
        )
        self._taken = 0  # global steps with an update; drives the learning rate

    def train_step(self) -> dict[str, float]:
        """One rollout batch and its updates. Returns the step's metrics.

        kl (k3 estimate to the reference), entropy (nats) and clip_fraction are means over the tokens in the loss, at
        the time of their update; loss and grad_norm (before clipping) means over the updates; reward_std is the
        standard deviation (n denominator) over all finite rewards; tokens counts the sampled tokens;
        skipped is 1 where no update had a gradient; a gradient that is not finite moves nothing either, shows in loss
        or grad_norm and is not "skipped". NaN stands for "not measured". Raises TrainingError.
        """
        chosen = batch_indices(len(self._rows), self.seed, self.step, self.algorithm.prompts_per_step)
        rows = [self._rows[i] for i in chosen]
        batch = self._sample(rows)
        rewards = self._rewards([row for row in rows for _ in range(self.algorithm.rollouts)], batch)
        advantages = group_advantages(rewards, self.algorithm.rollouts)
        rate = self.algorithm.learning_rate * rate_factor(
            self.algorithm.lr_scheduler, self._taken, self.algorithm.warmup_steps, self.horizon
        )
        tally = Tally()
        moved = False
        for groups in torch.arange(len(rows)).tensor_split(self.algorithm.minibatches):
            moved = self._update(batch, advantages, groups.tolist(), rate, tally, fresh=not moved) or moved
        self.step += 1
        self._taken += moved
        skipped = not moved and all(map(math.isfinite, tally.norms))
        return _metrics(batch, advantages, rewards, tally) | {"skipped": float(skipped), "learning_rate": rate}

    def evaluate(self, rows: Sequence[Row]) -> list[float]:
        """Score of the greedy completion of each row, NaN where the score is None. Leaves the training state alone."""
        prompts = [self._render(row, self._policy.tokenizer) for row in rows]
        scores = [math.nan] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: len(prompts[i]))
        for start in range(0, len(order), self.algorithm.eval_batch):
            part = order[start : start + self.algorithm.eval_batch]
            batch = rollouts.greedy(
                self._policy, [prompts[i] for i in part], max_new_tokens=self.algorithm.max_new_tokens
            )
            for i, score in zip(part, self._rewards([rows[i] for i in part], batch), strict=True):
                scores[i] = math.nan if score is None else float(score)
        return scores

    def save(self, folder: Path) -> None:
        """Write weights (``policy/``) and training state to ``folder``. Not atomic: the registry publishes it."""
        self.export(folder / "policy")
        state = {
            "step": self.step,
            "taken": self._taken,
            "identity": self._identity(),
            "optimizer": self._optimizer.state_dict(),
        }
        write_state(folder, state)

    def load(self, folder: Path) -> None:
        """Go on from what :meth:`save` wrote, bit for bit. Raises TrainingError for another run's checkpoint."""
        state = read_state(folder)
        identity = self._identity()
        saved = state.get("identity")
        if not isinstance(saved, dict):
            raise TrainingError("the checkpoint names no run", where=str(folder))
        for key, value in identity.items():
            if saved.get(key) != value:
                raise TrainingError(f"{key} was {saved.get(key)} at saving and is {value} now", where=str(folder))
        self._policy.load(folder / "policy")
        try:
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self._taken = int(state["step"]), int(state["taken"])
        except (KeyError, ValueError, TypeError) as error:
            raise TrainingError(f"optimiser state does not fit ({error})", where=str(folder)) from error
        restore_streams(state)

    def export(self, folder: Path) -> None:
        """Write the policy for transformers (full weights) or peft (adapter), with its tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        self._policy.save(folder)

    def _sample(self, rows: Sequence[Row]) -> rollouts.Rollout:
        return rollouts.sample(
            self._policy,
            [self._render(row, self._policy.tokenizer) for row in rows],
            group=self.algorithm.rollouts,
            max_new_tokens=self.algorithm.max_new_tokens,
            temperature=self.algorithm.temperature,
            generator=torch.Generator().manual_seed(stream_seed(self.seed, self.step)),
            batch=self.algorithm.micro_batch * _SAMPLING_FACTOR,
        )

    def _rewards(self, rows: Sequence[Row], batch: rollouts.Rollout) -> Sequence[float | None]:
        rewards = self._score(rows, rollouts.texts(self._policy, batch))
        if len(rewards) != len(rows):
            raise TrainingError(f"the reward gave {len(rewards)} values for {len(rows)} completions")
        return rewards

    def _update(
        self,
        batch: rollouts.Rollout,
        advantages: Advantages,
        groups: list[int],
        rate: float,
        tally: Tally,
        *,
        fresh: bool,
    ) -> bool:
        """One minibatch; False where there was no gradient, or one that is not finite: then nothing moves."""
        self._optimizer.zero_grad(set_to_none=True)
        completions = int(advantages.valid[groups].sum())
        if not completions:
            return False
        loss = 0.0
        start = self._taken == 0 and fresh
        for piece in pieces(batch, advantages, groups, self.algorithm.micro_batch):
            if bool(piece.counted.any()):
                loss += accumulate(
                    self._policy,
                    piece,
                    self.algorithm,
                    completions=completions,
                    tally=tally,
                    fresh=fresh,
                    start=start,
                )
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self.algorithm.grad_clip))
        tally.losses.append(loss)
        tally.norms.append(norm)
        if norm == 0 or not math.isfinite(norm):
            return False
        before = [parameter.detach().clone() for parameter in self._parameters] if start else []
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        if before and all(map(torch.equal, before, self._parameters)):
            raise TrainingError(
                f"nothing is trained: an update with gradient norm {norm:.3g} left all weights as they were",
                fix="raise the learning rate",
            )
        return True

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be resumed."""
        settings = self.algorithm.model_dump(exclude=set(_RESUMABLE))
        return {"seed": self.seed, "horizon": self.horizon, "reference": self._policy.reference_identity(), **settings}


def _metrics(
    batch: rollouts.Rollout, advantages: Advantages, rewards: Sequence[float | None], tally: Tally
) -> dict[str, float]:
    finite = torch.tensor([r for r in rewards if r is not None and math.isfinite(r)], dtype=torch.float64)
    lengths = batch.completion_mask.sum(1)
    return {
        "kl": tally.per_token(tally.kl),
        "reward_mean": _mean(finite),
        "reward_std": float(finite.std(correction=0)) if len(finite) else math.nan,
        "reward_nonfinite": float(len(rewards) - len(finite)),
        "entropy": tally.per_token(tally.entropy),
        "loss": _mean(torch.tensor(tally.losses, dtype=torch.float64)),
        "grad_norm": _mean(torch.tensor(tally.norms, dtype=torch.float64)),
        "clip_fraction": tally.per_token(tally.clipped),
        "response_length": _mean(lengths.double()),
        "truncated_fraction": _mean(batch.truncated.double()),
        "zero_variance_fraction": _mean(advantages.zero_variance.double()),
        "tokens": float(lengths.sum()),
    }


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else math.nan


def _make_deterministic() -> None:
    """Prefer deterministic kernels; the workspace setting must stand before CUDA's first matrix product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
