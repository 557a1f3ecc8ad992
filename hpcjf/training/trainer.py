"""RL post-training of one policy: rollouts, rewards, updates, evaluation, exact resume.

Where it leaves the papers' letter: the prompt of a group runs once per pass; completions without a finite reward are
left out of the loss; an update without gradient is not taken, since Adam's momentum would move the weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hpcjf.errors import StudyError, TrainingError
from hpcjf.study import AlgorithmSection, ModelSection
from hpcjf.tasks.base import Row
from hpcjf.training import rollout as rollouts
from hpcjf.training.checkpoint import read_state, restore_streams, write_state
from hpcjf.training.judge import Judge, Score
from hpcjf.training.learner import Learner, ValueHead
from hpcjf.training.measures import step_metrics
from hpcjf.training.objectives.advantages import groups_with_signal
from hpcjf.training.objectives.chosen import policy_gradient
from hpcjf.training.order import draw_indices, stream_seed
from hpcjf.training.pieces import pieces
from hpcjf.training.policy import load_policy
from hpcjf.training.schedule import rate_factor
from hpcjf.training.targets import Plan, Targets, make_targets
from hpcjf.training.update import Tally, accumulate

Render = Callable[[Row, Any], list[int]]
_SAMPLING_FACTOR = 8  # completions per sampling batch over ``micro_batch``: no activations are kept there
_RESUMABLE = frozenset({"eval_every", "eval_batch", "micro_batch"})  # settings that a resumed run may change


class Trainer:
    """One policy on its way from step 0 to ``horizon`` global steps.

    ``algorithm`` already holds the trial's hyperparameters. Data order is a function of (``seed``, epoch, position),
    sampling one of (``seed``, step, redraw) and the weights. ``render`` gives a row's prompt as token ids. ``score``
    gives a reward per row and completion; None, NaN and infinities are counted and kept away from the optimiser, and so
    are completions for which it raises (:class:`Judge`).
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
        self._rows, self._judge, self._render = train_rows, Judge(score), render
        objective = policy_gradient(algorithm)
        self._policy = load_policy(model, model_path, seed=seed)
        self._parameters = self._policy.parameters()
        self._head = ValueHead(self._policy) if objective.critic else None
        self._learner = Learner(self._policy, objective, algorithm.temperature, self._head)
        groups = [{"params": part, "lr": algorithm.learning_rate} for part in self._trained()]
        self._optimizer = torch.optim.AdamW(groups, weight_decay=algorithm.weight_decay, fused=True)
        self._taken = 0  # global steps with an update; drives the learning rate
        self._level: float | None = None  # HARGO's running log-probability

    def train_step(self) -> dict[str, float]:
        """One rollout batch and its updates. Returns the step's metrics.

        kl (k3 estimate to the reference), entropy (nats), clip_fraction and value_loss are means over the tokens in the
        loss, at the time of their update; loss and grad_norm (before clipping) means over the updates; reward_std is
        the standard deviation (n denominator) over all finite rewards; tokens counts the sampled tokens;
        skipped is 1 where no update had a gradient; a gradient that is not finite moves nothing either, shows in loss
        or grad_norm and is not "skipped". NaN stands for "not measured". Rewards, lengths and groups without variance
        are those of all that was drawn. Raises TrainingError.
        """
        drawn, rewards, redraws = self._draw()
        metrics = {}
        batch, kept = drawn, rewards
        if self._learner.objective.dynamic_sampling:
            batch, kept = self._with_signal(drawn, rewards)
            metrics = {"redraws": float(redraws), "groups": float(len(batch.prompt_ids))}
        parts = torch.arange(len(batch.prompt_ids)).tensor_split(self.algorithm.minibatches)
        minibatches = [groups.tolist() for groups in parts if len(groups)]
        plan = Plan(
            minibatches, self.algorithm.micro_batch, self.algorithm.max_new_tokens, self._taken == 0, self._level
        )
        targets = make_targets(self._learner, batch, kept, plan)
        rate = self.algorithm.learning_rate * rate_factor(
            self.algorithm.lr_scheduler, self._taken, self.algorithm.warmup_steps, self.horizon
        )
        tally = Tally()
        moved = False
        for groups in minibatches:
            moved = self._update(batch, targets, groups, rate, tally, fresh=not moved) or moved
        self.step += 1
        self._taken += moved
        self._level = targets.level
        skipped = not moved and all(map(math.isfinite, tally.norms))
        metrics |= step_metrics(drawn, rewards, tally) | targets.metrics
        if self._head:
            metrics["value_loss"] = tally.per_token(tally.value_loss)
        return metrics | {"skipped": float(skipped), "learning_rate": rate}

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
                scores[i] = math.nan if score is None else score
        return scores

    def save(self, folder: Path) -> None:
        """Write weights (``policy/``) and training state to ``folder``. Not atomic: the registry publishes it."""
        self.export(folder / "policy")
        state = {
            "step": self.step,
            "taken": self._taken,
            "identity": self._identity(),
            "optimizer": self._optimizer.state_dict(),
            "level": self._level,
            "head": self._head and self._head.state_dict(),
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
            self.step, self._taken, self._level = int(state["step"]), int(state["taken"]), state.get("level")
            if self._head:
                self._head.load_state_dict(state["head"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise TrainingError(f"optimiser state does not fit ({error})", where=str(folder)) from error
        restore_streams(state)

    def export(self, folder: Path) -> None:
        """Write the policy for transformers (full weights) or peft (adapter), with its tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        self._policy.save(folder)

    def _trained(self) -> list[list[torch.nn.Parameter]]:
        """The policy's parameters, and those of the value head."""
        return [self._parameters, *([list(self._head.parameters())] if self._head else [])]

    def _draw(self) -> tuple[rollouts.Rollout, list[float | None], int]:
        """All completions of the step with their rewards, and the number of further draws: with dynamic sampling there
        are some until enough groups carry a signal (DAPO), ``max_redraws`` at most."""
        objective, size, group = self._learner.objective, self.algorithm.prompts_per_step, self.algorithm.rollouts
        prompts: list[list[int]] = []
        parts: list[rollouts.Rollout] = []
        rewards: list[float | None] = []
        for redraw in range(1 + objective.max_redraws):
            rows = [self._rows[i] for i in draw_indices(len(self._rows), self.seed, self.step, redraw, size)]
            new = [self._render(row, self._policy.tokenizer) for row in rows]
            parts.append(self._sample(new, redraw))
            prompts += new
            rewards += self._rewards([row for row in rows for _ in range(group)], parts[-1])
            if not objective.dynamic_sampling or len(groups_with_signal(rewards, group)) >= size:
                break
        return rollouts.joined(self._policy, prompts, parts), rewards, redraw

    def _with_signal(
        self, drawn: rollouts.Rollout, rewards: Sequence[float | None]
    ) -> tuple[rollouts.Rollout, list[float | None]]:
        """The first groups that carry a signal, as many as a step has prompts; without any, the first draw."""
        size, group = self.algorithm.prompts_per_step, self.algorithm.rollouts
        groups = groups_with_signal(rewards, group)[:size] or list(range(size))
        return rollouts.take(drawn, groups), [rewards[i * group + j] for i in groups for j in range(group)]

    def _sample(self, prompts: Sequence[Sequence[int]], redraw: int) -> rollouts.Rollout:
        return rollouts.sample(
            self._policy,
            prompts,
            group=self.algorithm.rollouts,
            max_new_tokens=self.algorithm.max_new_tokens,
            temperature=self.algorithm.temperature,
            generator=torch.Generator().manual_seed(stream_seed(self.seed, self.step, redraw)),
            batch=self.algorithm.micro_batch * _SAMPLING_FACTOR,
        )

    def _rewards(self, rows: Sequence[Row], batch: rollouts.Rollout) -> list[float | None]:
        return self._judge(rows, rollouts.texts(self._policy, batch))

    def _update(
        self,
        batch: rollouts.Rollout,
        targets: Targets,
        groups: list[int],
        rate: float,
        tally: Tally,
        *,
        fresh: bool,
    ) -> bool:
        """One minibatch; False where there was no gradient, or one that is not finite: then nothing moves."""
        self._optimizer.zero_grad(set_to_none=True)
        seen = [p for p in pieces(batch, groups, self.algorithm.micro_batch) if bool(p.of(targets.counted).any())]
        if not seen:
            return False
        start = self._taken == 0 and fresh
        loss = 0.0
        for piece in seen:
            loss += accumulate(self._learner, piece, targets, tally, fresh=fresh, start=start)
        norms = [float(torch.nn.utils.clip_grad_norm_(part, self.algorithm.grad_clip)) for part in self._trained()]
        norm = math.hypot(*norms)
        tally.losses.append(loss)
        tally.norms.append(norm)
        if norm == 0 or not math.isfinite(norm):
            return False
        before = [parameter.detach().clone() for parameter in self._parameters] if start and norms[0] else []
        self._step(norms, rate)
        if before and all(map(torch.equal, before, self._parameters)):
            raise TrainingError(
                f"nothing is trained: an update with gradient norm {norms[0]:.3g} left all weights as they were",
                fix="raise the learning rate",
            )
        return True

    def _step(self, norms: Sequence[float], rate: float) -> None:
        """Let policy and value head move, each only where it has a gradient."""
        critic = self._learner.objective.critic
        factors = [1.0, critic.rate_factor if critic else 1.0]
        for group, norm, factor in zip(self._optimizer.param_groups, norms, factors, strict=False):
            group["lr"] = rate * factor
            for parameter in group["params"] if norm == 0 else ():
                parameter.grad = None
        self._optimizer.step()

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be resumed."""
        settings = self.algorithm.model_dump(exclude=set(_RESUMABLE))
        return {"seed": self.seed, "horizon": self.horizon, "reference": self._policy.reference_identity(), **settings}


def _make_deterministic() -> None:
    """Prefer deterministic kernels; the workspace setting must stand before CUDA's first matrix product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
