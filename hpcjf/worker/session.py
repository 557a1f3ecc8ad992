"""One attempt: claim the registry entry, go on from its checkpoint, train to the budget, leave trace and result."""

from __future__ import annotations

import functools
import math
import resource
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from hpcjf.errors import FencedError
from hpcjf.store.layout import AttemptPaths, RunLayout
from hpcjf.store.messages import AttemptEvaluation, AttemptResult, AttemptSpec, Measured, StopOrder
from hpcjf.store.registry import Registry, RegistryEntry
from hpcjf.store.traces import OBJECTIVE_COLUMNS, TraceWriter
from hpcjf.study import AlgorithmSection, Study
from hpcjf.tasks import Embedder, TaskData, load_task, needs_embedder, render, score
from hpcjf.tasks.base import Row
from hpcjf.tasks.choices import Question, read_questions
from hpcjf.tasks.metrics import CORRECT, RACE_FORCED, row_metrics
from hpcjf.training.distributed import agreed, rank
from hpcjf.training.evaluation import right_choices
from hpcjf.training.policy import context_length, load_tokenizer
from hpcjf.training.trainer import Trainer
from hpcjf.types import Cause, Purpose
from hpcjf.worker.prompts import fitting
from hpcjf.worker.signals import Interruption


@dataclass
class Session:
    """The state of one attempt inside its job. ``born`` is the unix time at which the job's Python started."""

    layout: RunLayout
    study: Study
    spec: AttemptSpec
    interruption: Interruption
    born: float
    score: float | None = None
    scored_step: int = -1
    start_step: int = 0
    loop_started: float | None = None
    test_scores: tuple[float, ...] | None = None
    base_test_scores: tuple[float, ...] | None = None
    base: Measured | None = None
    embedder: Embedder | None = None
    questions: list[Question] = field(default_factory=list)
    trainer: Trainer = field(init=False)
    entry: RegistryEntry = field(init=False)
    data: TaskData = field(init=False)

    @property
    def main(self) -> bool:
        """Whether this process is the one that claims and writes, of those that share the attempt."""
        return rank() == 0

    @property
    def paths(self) -> AttemptPaths:
        return self.layout.attempt(self.spec.trial, self.spec.attempt)

    def run(self) -> AttemptResult:
        """Train to the end, a stop order, a signal or a divergence. Raises what the training raises."""
        self._prepare()
        self.loop_started = time.time()
        cause, detail = self._train()
        if cause in (Cause.COMPLETED, Cause.STOPPED_KL, Cause.STOPPED_REWARD):
            self._evaluate()
        if cause is Cause.COMPLETED and self.spec.purpose is not Purpose.SEARCH:
            self.test_scores, policy = self._tested()
            samples = self.study.evaluation.samples
            if self.main:
                found = AttemptEvaluation(name=self.spec.name, samples=samples, policy=policy, base=self.base)
                found.write(self.paths.evaluation)
        return self.result(cause, detail)

    def _prepare(self) -> None:
        spec, study = self.spec, self.study
        self._alone()
        registry = Registry(self.layout.registry)
        self.entry = registry.entry(spec.config_id, spec.model, spec.training_seed)
        if self.main:
            self.entry.claim(spec.name, spec.generation)
        if spec.purpose is not Purpose.SEARCH and study.evaluation.choices:
            self.questions = read_questions(Path(study.evaluation.choices))  # a lost file is no reason to train first
        model, folder = study.model(spec.model), self._folder()
        tokenizer = load_tokenizer(model, folder)
        self.data = fitting(load_task(study.task), tokenizer, study, context_length(model, folder))
        if self.main:
            print("\n".join(self.data.notes), flush=True)
        self.trainer = self._trainer()
        if spec.purpose is Purpose.RECIPE:
            self.base_test_scores, self.base = self._tested()
        checkpoint = agreed(self.entry.newest() if self.main else None)
        # one past this trial's end, left by a trial that the cluster lost, is no help: from the base weights then
        if checkpoint is not None and checkpoint.step <= spec.steps:
            self.trainer.load(checkpoint.path)
        self.start_step = self.trainer.step

    def _alone(self) -> None:
        """A job that was submitted twice or started again must not spoil what the first one says of the attempt.

        :raises FencedError: the attempt has been run.
        """
        if self.main and (self.paths.trace.exists() or self.paths.result.exists()):
            raise FencedError("run before, or elsewhere now", where=str(self.paths.folder), fix="end without writing")

    def _algorithm(self) -> AlgorithmSection:
        return AlgorithmSection.model_validate(self.study.algorithm.model_dump() | self.spec.config)

    def _folder(self) -> Path:
        return Path(self.study.model(self.spec.model).start(self._algorithm().base))

    def _trainer(self) -> Trainer:
        study, spec = self.study, self.spec
        model = study.model(spec.model)
        if needs_embedder(study.task):
            from hpcjf.training.rewards import SentenceEmbedder

            self.embedder = SentenceEmbedder(study.task.embedder)

        def reward(rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
            return score(rows, responses, self.embedder)

        return Trainer(
            model=model,
            model_path=self._folder(),
            algorithm=self._algorithm(),
            train_rows=self.data.train,
            score=reward,
            horizon=study.budget.max,
            seed=study.study.seed * 1000 + spec.training_seed,
            render=functools.partial(render, template=study.task.template),
        )

    def _train(self) -> tuple[Cause, str]:
        every, saved = self.study.checkpoints.save_every, self.trainer.step
        self._alone()
        with TraceWriter(self.paths.trace, OBJECTIVE_COLUMNS) if self.main else nullcontext() as trace:
            while self.trainer.step < self.spec.steps:
                verdict = agreed(self._verdict() if self.main else None)
                if verdict:
                    if saved < self.trainer.step:
                        self._save()
                    return verdict
                metrics = self.trainer.train_step()
                step = self.trainer.step
                if step % self.study.algorithm.eval_every == 0 or step == self.spec.steps:
                    self._evaluate()
                seen = {"eval_score": self.score} if self.scored_step == step else {}
                if trace is not None:
                    trace.append(step=step, time=time.time(), cpu_seconds=time.process_time(), **metrics, **seen)
                if diverged(metrics):
                    return Cause.DIVERGED, f"loss or gradient not finite at step {step}"
                if step % every == 0 or step == self.spec.steps:
                    self._save()
                    saved = step
        return Cause.COMPLETED, ""

    def _verdict(self) -> tuple[Cause, str] | None:
        """A stop order, else a signal, else None."""
        if self.paths.stop.exists():
            order = StopOrder.read(self.paths.stop)
            return order.cause, order.why
        if self.interruption.signal:
            return self._interrupted(), f"{self.interruption.signal.name} at step {self.trainer.step}"
        return None

    def _interrupted(self) -> Cause:
        """Near the wall-time limit the warning means that limit, else a preemption."""
        resources = self.study.model(self.spec.model).resources.over(self.study.cluster)
        if resources.time_minutes is None:
            return Cause.PREEMPTED
        left = resources.time_minutes * 60 - (time.time() - self.born)
        return Cause.TIMED_OUT if left < self.study.cluster.signal_seconds + 60 else Cause.PREEMPTED

    def _evaluate(self) -> None:
        if self.scored_step != self.trainer.step:
            scores = _counted(self.trainer.evaluate(self.data.validation))
            self.score, self.scored_step = sum(scores) / len(scores), self.trainer.step

    def _tested(self) -> tuple[tuple[float, ...], Measured]:
        """Greedy scores of the test rows, and all that the study's evaluation asks for."""
        rows, asked = self.data.test, self.study.evaluation
        responses = self.trainer.respond(rows)
        columns = row_metrics(rows, responses, self.embedder)
        races = [i for i, row in enumerate(rows) if row.task.startswith("race_")]
        if races:
            forced = self.trainer.choose([rows[i] for i in races], ("yes", "no"))
            right = {i: float(word in rows[i].references) for i, word in zip(races, forced, strict=True)}
            columns[RACE_FORCED] = tuple(map(right.get, range(len(rows))))
        if asked.pass_at:
            sampled = rows[: asked.rows]
            counts = self.trainer.count_right(sampled, asked.samples, asked.temperature)
            columns[CORRECT] = (*map(float, counts), *[None] * (len(rows) - len(sampled)))
        choices = right_choices(self.trainer.policy, self.questions)
        return _counted(self.trainer.judge(rows, responses)), Measured(rows=columns, choices=tuple(choices))

    def _save(self) -> None:
        if not self.main:
            return
        step = self.trainer.step
        staging = self.entry.staging(step)
        self.trainer.save(staging)
        meta = {"trial": self.spec.trial, "attempt": self.spec.attempt}
        self.entry.publish(staging, step, owner=self.spec.name, generation=self.spec.generation, meta=meta)
        self.entry.collect(self.study.checkpoints.keep)

    def result(self, cause: Cause, detail: str) -> AttemptResult:
        """The result as things stand, also after a failure before the first step."""
        now = time.time()
        loop = now - self.loop_started if self.loop_started else 0.0
        return AttemptResult(
            name=self.spec.name,
            cause=cause,
            step=self.trainer.step if hasattr(self, "trainer") else 0,
            start_step=self.start_step,
            score=self.score,
            seconds=loop,
            startup_seconds=now - self.born - loop,
            cpu_seconds=time.process_time(),
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            test_scores=self.test_scores,
            base_test_scores=self.base_test_scores,
            detail=detail,
        )


def _counted(scores: Sequence[float | None]) -> tuple[float, ...]:
    """A response that the reward could not judge counts as 0."""
    return tuple(score if score is not None and math.isfinite(score) else 0.0 for score in scores)


def diverged(metrics: dict[str, float]) -> bool:
    """A loss or gradient that is not finite although the step was not skipped (a skipped one has null metrics)."""
    return not metrics["skipped"] and not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"]))
