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
from hpcjf.study import SUPERVISED, AlgorithmSection, ModelSection
from hpcjf.tasks.base import Row
from hpcjf.training.checkpoint import read_state, restore_streams, write_state
from hpcjf.training.demonstrations import Supervision, supervised_metrics
from hpcjf.training.drawing import Render
from hpcjf.training.evaluation import forced_choices, greedy_texts, right_samples
from hpcjf.training.judge import Judge, Score
from hpcjf.training.policy import load_policy
from hpcjf.training.reinforcement import Reinforcement
from hpcjf.training.update import Tally

_RESUMABLE = frozenset(
    {"eval_every", "eval_batch", "micro_batch", "vllm_memory"}
)  # settings that a resumed run may change


class Trainer:
    """One policy on its way from step 0 to ``horizon`` global steps, by ``algorithm.pipeline``.

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
        self.judge, self._render = Judge(score), render
        self.policy = policy = load_policy(model, model_path, seed=seed)
        self._base = policy.reference_identity()
        pipeline = algorithm.pipeline
        self._switch = 0  # the global step from which on there is RL
        if pipeline == "sft_then_rl":
            self._switch = min(max(1, round(algorithm.sft_share * horizon)), horizon - 1)
        self.sft = self.rl = None
        if pipeline != "rl":
            self.sft = Supervision(policy, algorithm, train_rows, render, seed, self._switch or horizon)
        if pipeline not in SUPERVISED:
            left = horizon - self._switch
            self.rl = Reinforcement(policy, algorithm, train_rows, self.judge, render, seed, left)

    def train_step(self) -> dict[str, float]:
        """One rollout batch and its updates, or without RL one update on demonstrations. Returns the step's metrics.

        kl (k3 estimate to the reference), entropy (nats), clip_fraction and value_loss are means over the tokens in the
        loss, at the time of their update; loss and grad_norm (before clipping) means over the updates; reward_std is
        the standard deviation (n denominator) over all finite rewards; tokens counts those that were sampled or
        imitated; skipped is 1 where no update had a gradient; a gradient that is not finite moves nothing either, shows
        in loss or grad_norm and is not "skipped". NaN stands for "not measured". Rewards, lengths and groups without
        variance are those of all that was drawn. With RL and SFT averaged, loss and grad_norm are averages too.
        Raises TrainingError.
        """
        if self.rl is None or self.step < self._switch:
            metrics = self._supervised_step()
        else:
            if self.step == self._switch and self._switch:
                self.policy.take_as_reference()
            metrics = self._sampled_step()
        self.step += 1
        return metrics

    def respond(self, rows: Sequence[Row]) -> list[str]:
        """The greedy completion of each row. Leaves the training state alone."""
        return greedy_texts(self.policy, self._prompts(rows), self.algorithm.eval_batch, self.algorithm.max_new_tokens)

    def evaluate(self, rows: Sequence[Row]) -> list[float]:
        """Score of the greedy completion of each row, NaN where the score is None. Leaves the training state alone."""
        return [math.nan if score is None else score for score in self.judge(rows, self.respond(rows))]

    def count_right(self, rows: Sequence[Row], samples: int, temperature: float) -> list[int]:
        """How many of ``samples`` responses to each row earn the full reward. Leaves the training state alone."""
        limit, prompts = self.algorithm.max_new_tokens, self._prompts(rows)
        return right_samples(
            self.policy, rows, prompts, self.judge, samples=samples, temperature=temperature, max_new_tokens=limit
        )

    def choose(self, rows: Sequence[Row], choices: Sequence[str]) -> list[str]:
        """Which of ``choices`` is the likeliest response to each row."""
        places = forced_choices(self.policy, self._prompts(rows), [choices] * len(rows))
        return [choices[place] for place in places]

    def _prompts(self, rows: Sequence[Row]) -> list[list[int]]:
        return [self._render(row, self.policy.tokenizer) for row in rows]

    def save(self, folder: Path) -> None:
        """Write weights (``policy/``) and training state to ``folder``. Not atomic: the registry publishes it."""
        self.export(folder / "policy")
        state = {
            "step": self.step,
            "identity": self._identity(),
            "rl": self.rl and self.rl.state(),
            "sft": self.sft and self.sft.optimiser.state(),
            "reference": self.policy.anchor,
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
        self.policy.load(folder / "policy")
        try:
            self.step = int(state["step"])
            if self.rl:
                self.rl.restore(state["rl"])
            if self.sft:
                self.sft.optimiser.restore(state["sft"])
            if state["reference"] is not None:
                self.policy.take_as_reference(state["reference"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise TrainingError(f"optimiser state does not fit ({error})", where=str(folder)) from error
        restore_streams(state)

    def export(self, folder: Path) -> None:
        """Write the policy for transformers (full weights) or peft (adapter), with its tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        self.policy.save(folder)

    def _supervised_step(self) -> dict[str, float]:
        assert self.sft
        tally, rate = Tally(), self.sft.optimiser.rate
        moved = self.sft.update(self.step, tally, start=self._untouched)
        self.sft.optimiser.taken += moved
        metrics = supervised_metrics(tally)
        skipped = not moved and math.isfinite(metrics["grad_norm"])
        return metrics | {"sft_loss": metrics["loss"], "skipped": float(skipped), "learning_rate": rate}

    def _sampled_step(self) -> dict[str, float]:
        """One rollout batch and its updates; in the pipeline ``parallel`` each of them averaged with one of SFT."""
        rl = self.rl
        assert rl
        sft = self.sft if self.algorithm.pipeline == "parallel" else None
        start, rate = self._untouched, rl.optimiser.rate
        lesson = rl.lesson(self.step, start=start)
        tally, imitated = Tally(), Tally()
        moved = [False, False]
        for number, groups in enumerate(lesson.minibatches, self.step * self.algorithm.minibatches):
            fresh = not any(moved)

            def reinforce(groups: Sequence[int] = groups, fresh: bool = fresh) -> bool:
                return rl.update(lesson, groups, tally, fresh=fresh, start=start and fresh)

            def imitate(number: int = number, fresh: bool = fresh) -> bool:
                return sft is not None and sft.update(number, imitated, start=start and fresh)

            made = (reinforce(), False) if sft is None else self._averaged(reinforce, imitate)
            moved = [one or other for one, other in zip(moved, made, strict=True)]
        rl.optimiser.taken += moved[0]
        skipped = not any(moved) and all(map(math.isfinite, (*tally.norms, *imitated.norms)))
        metrics = rl.metrics(lesson, tally) | {"skipped": float(skipped), "learning_rate": rate}
        if sft is None:
            return metrics
        sft.optimiser.taken += moved[1]
        imitated.add_up()
        shares = {"loss": (tally.losses, imitated.losses), "grad_norm": (tally.norms, imitated.norms)}
        averages = {name: self._average(*each) for name, each in shares.items()}
        imitation = {"sft_loss": _mean(imitated.losses), "tokens": metrics["tokens"] + imitated.tokens}
        return metrics | averages | imitation

    def _averaged(self, reinforce: Callable[[], bool], imitate: Callable[[], bool]) -> tuple[bool, bool]:
        """θ ← θ̄ + λ Δ_RL + (1 − λ) Δ_SFT, both updates from one snapshot θ̄ by optimisers of their own
        (arXiv 2606.04272)."""
        parameters = self.policy.parameters()
        snapshot = [parameter.detach().clone() for parameter in parameters]
        reinforced = reinforce()
        after = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter, weight in zip(parameters, snapshot, strict=True):
                parameter.copy_(weight)
        imitated = imitate()
        with torch.no_grad():
            for parameter, weight in zip(parameters, after, strict=True):
                parameter.lerp_(weight, self.algorithm.parallel_weight)
        return reinforced, imitated

    def _average(self, reinforced: Sequence[float], imitated: Sequence[float]) -> float:
        """Of figures of the updates; where the RL part had nothing to learn from they are 0."""
        share = self.algorithm.parallel_weight
        return share * (_mean(reinforced) if reinforced else 0.0) + (1 - share) * _mean(imitated)

    @property
    def _untouched(self) -> bool:
        """Whether the policy still is the reference."""
        alone = self.sft is None or not self.sft.optimiser.taken or self.policy.anchor is not None
        return alone and not (self.rl and self.rl.optimiser.taken)

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be resumed."""
        settings = self.algorithm.model_dump(exclude=set(_RESUMABLE))
        return {"seed": self.seed, "horizon": self.horizon, "reference": self._base, **settings}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _make_deterministic() -> None:
    """Prefer deterministic kernels; the workspace setting must stand before CUDA's first matrix product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
