"""The typed study: what a study file says. No file access here; ``hpcjf.config`` reads and resolves files."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from hpcjf.core.constraints import Constraint
from hpcjf.errors import StudyError
from hpcjf.study.algorithm import SUPERVISED, AlgorithmSection, ObjectiveName, Pipeline
from hpcjf.study.base import NUMBERS, Line, Name, Section
from hpcjf.study.space import SEARCHABLE, Categorical, Dimension, IntegerRange, RealRange

__all__ = [
    "SEARCHABLE", "SUPERVISED", "Adapter", "AlgorithmSection", "ArithmeticTask", "BudgetSection", "Categorical",
    "CheckpointSection", "ClusterSection", "Dimension", "EvaluationSection", "IntegerRange", "Method",
    "ModelSection", "ObjectiveName", "Pipeline", "RealRange", "Resources", "SearchSection", "Section",
    "StoppingSection", "Study", "StudySection", "TaskName", "TaskSection", "Template",
]  # fmt: skip


class StudySection(Section):
    name: Name = "study"
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of the search and of every trial.")
    direction: Literal["maximize", "minimize"] = "maximize"
    metric: Literal["eval_score"] = Field(
        "eval_score", description="Trace column that the search optimises: the greedy score on the validation rows."
    )
    training_seeds: int = Field(
        3, ge=1, description="Training seeds for the winner and for the recipe in the final comparison."
    )


class Resources(Section):
    """What a job asks for. Every field may be set under ``cluster`` and overridden under a model."""

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    time_minutes: int | None = Field(None, ge=1, description="Wall-time limit of a job, minutes.")
    cpus: int | None = Field(None, ge=1, description="CPU cores of a job, on each of its nodes.")
    gpus: int | None = Field(None, ge=0, description="GPUs of a job, on each of its nodes.")
    nodes: int | None = Field(None, ge=1, description="Nodes of a job; 1 where not set.")
    processes: int | None = Field(
        None, ge=1, description="Processes on each node, which share every batch; one for each GPU where not set."
    )
    mem_gb: float | None = Field(None, gt=0, description="Memory per node, GB.")
    mem_per_cpu_gb: float | None = Field(None, gt=0, description="Memory per core, GB; excludes the other two.")
    mem_per_gpu_gb: float | None = Field(None, gt=0, description="Memory per GPU, GB; excludes the other two.")
    setup: tuple[Line, ...] | None = Field(None, description="Shell lines run before Python in the job.")
    extra_directives: dict[str, Line] | None = Field(
        None, description="More sbatch directives, e.g. {constraint: a100}; an empty value makes a flag."
    )
    skip_directives: tuple[str, ...] | None = Field(
        None, description="Directives that must not be written, e.g. [mem] where a site refuses --mem."
    )

    @model_validator(mode="after")
    def _one_memory(self) -> Self:
        given = [n for n in ("mem_gb", "mem_per_cpu_gb", "mem_per_gpu_gb") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other; keep one")
        if "requeue" in (self.extra_directives or {}):
            raise ValueError("requeue must not be set: a preempted trial is resumed in a new job")
        return self

    @property
    def tasks(self) -> int:
        """Processes on each node."""
        return self.processes or self.gpus or 1

    def over(self, base: Resources) -> Resources:
        """These resources where set, those of ``base`` elsewhere. One memory form replaces another."""
        mine = self.model_dump(include=set(Resources.model_fields), exclude_none=True)
        theirs = base.model_dump(include=set(Resources.model_fields), exclude_none=True)
        if any(key.startswith("mem") for key in mine):
            theirs = {key: value for key, value in theirs.items() if not key.startswith("mem")}
        return Resources.model_validate(theirs | mine)


class Adapter(Section):
    type: Literal["none", "lora"] = Field("none", description="none trains all weights.")
    rank: int = Field(8, ge=1)
    alpha: float = Field(16, gt=0)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


class ModelSection(Section):
    name: Name
    path: str = Field(description="Model folder, hub id, or builtin:tiny-xs, -s, -m or -l.")
    revision: str | None = None
    parameters: int | None = Field(None, ge=1, description="Parameter count; read from the weights where omitted.")
    adapter: Adapter = Adapter()
    dtype: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = Field(
        False,
        description="Keep one activation a layer and compute the others again: less memory, about a third slower.",
    )
    trust_remote_code: bool = False
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.trust_remote_code and self.revision is None:
            raise ValueError("trust_remote_code needs a pinned revision")
        return self


ArithmeticTask = Literal["arithmetic", "subtraction"]
"""Tasks whose rows are made, not read from files."""
Template = Literal["auto", "chat", "plain"]
TaskName = Literal[ArithmeticTask, "race_c", "race_fortran", "mlperf", "plp"]


class TaskSection(Section):
    names: tuple[TaskName, ...] = Field(("arithmetic",), min_length=1, description="One task, or several mixed.")
    path: str | None = Field(None, description="File, or folder of files, with the rows; none where they are made.")
    validation_rows: int = Field(128, ge=1, description="Rows cut from the training rows to score trials.")
    test_rows: int | None = Field(None, ge=1, description="Cap on test rows in the final comparison; null = all.")
    max_prompt_tokens: int = Field(
        512,
        ge=1,
        description="Longer prompts are left out, and counted; so are those that the model's context lacks room for.",
    )
    template: Template = Field("auto", description="Chat template of the model; auto is plain text where it has none.")
    leaks: Literal["mask", "keep"] = Field("mask", description="mask neutralises names that give a race label away.")
    split: Literal["grouped", "paper"] = Field("grouped", description="grouped keeps equal prompts on one side.")
    embedder: str = Field("sentence-transformers/all-MiniLM-L6-v2", description="Sentence embedder for plp.")


class BudgetSection(Section):
    unit: Literal["steps"] = "steps"
    min: int = Field(10, ge=1, description="Smallest budget of a trial, global steps.")
    max: int = Field(90, ge=1, description="Full budget of a trial, global steps.")
    eta: float = Field(3, gt=1, description="Ratio between neighbouring budgets.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        return self


Method = Literal["jfhpo", "recipe", "grid", "random", "sha", "hyperband", "asha", "bohb", "tpe"]


def _readable(text: str) -> str:
    """A constraint over numbers of ``algorithm``."""
    numbers = [name for name, field in AlgorithmSection.model_fields.items() if field.annotation in NUMBERS]
    try:
        return Constraint(text, numbers).text
    except StudyError as error:
        raise ValueError(f"{error.what}; {error.fix}") from error


class SearchSection(Section):
    method: Method = "jfhpo"
    acquisition: Literal["joint", "paper"] = Field(
        "joint", description="jfhpo: what a trial teaches about the target per cost, or the paper's EI of the proxy."
    )
    deterministic: bool = Field(False, description="The same study from the same seed, whatever the timing; slower.")
    parallel: int = Field(4, ge=1, description="Most jobs in flight.")
    max_trials: int | None = Field(24, ge=1, description="Search trials, the recipe's first one included.")
    max_hours: float | None = Field(None, gt=0, description="Wall time of the search, hours.")
    max_job_hours: float | None = Field(None, gt=0, description="Job time of the search summed over jobs, hours.")
    initial: int | None = Field(
        None,
        ge=0,
        description="Space-filling trials on the proxy before the surrogate takes over; 4 to 12 by max_trials if null.",
    )
    configurations: tuple[dict[str, bool | int | float | str], ...] = Field(
        (), description="Configurations to try right after the recipe; what one leaves out is the recipe's."
    )
    warm_start: str | None = Field(None, description="Run directory of an earlier study over the same space.")
    constraints: tuple[Annotated[Line, AfterValidator(_readable)], ...] = Field(
        (), description="What a configuration must meet, e.g. rollouts * prompts_per_step <= 128."
    )
    kl_ceiling: float | None = Field(
        None, gt=0, description="Largest KL to the reference, nats per token, at which a configuration may win."
    )

    @property
    def design(self) -> int:
        """Space-filling trials: a quarter of ``max_trials`` between 4 and 12 where ``initial`` does not say."""
        if self.initial is not None:
            return self.initial
        return 12 if self.max_trials is None else min(12, max(4, self.max_trials // 4))

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.max_trials is self.max_hours is self.max_job_hours is None:
            raise ValueError("set at least one of max_trials, max_hours, max_job_hours")
        if self.deterministic and (self.max_trials is None or self.max_hours or self.max_job_hours):
            raise ValueError("deterministic needs max_trials as the only limit: the others depend on the clock")
        return self


class StoppingSection(Section):
    rule: Literal["robust", "paper", "none"] = "robust"
    patience: int = Field(5, ge=1, description="k: consecutive global steps that must offend.")
    kl_growth: float = Field(0.15, gt=0, description="tau1: relative growth of KL per step.")
    reward_drop: float = Field(0.10, gt=0, description="tau2: drop of the reward per step.")
    warmup_steps: int = Field(10, ge=0, description="robust: no stop before this step, NaN apart.")
    kl_floor: float = Field(0.05, ge=0, description="robust: KL growth below this absolute KL is ignored.")
    kl_ceiling: float = Field(2.0, gt=0, description="robust: smoothed KL above this stops.")
    entropy_floor: float = Field(
        0.0,
        ge=0,
        description="robust: smoothed entropy below this stops, nats; 0 never stops, sure answers may be right.",
    )


class EvaluationSection(Section):
    """What final runs measure beside the greedy test score; docs/evaluation.md has the formulas."""

    pass_at: tuple[Annotated[int, Field(ge=1)], ...] = Field((), description="The k of pass@k; none draws no samples.")
    samples: int = Field(64, ge=2, description="Responses drawn of each row for pass@k, at least the largest k.")
    temperature: float = Field(0.6, gt=0, description="At which they are drawn.")
    rows: int | None = Field(200, ge=1, description="Test rows that are sampled, the first ones; null = all.")
    choices: str | None = Field(
        None, description="JSONL file of {question, choices, answer}: a check of general capability by likelihood."
    )

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if self.pass_at and max(self.pass_at) > self.samples:
            raise ValueError(f"pass@{max(self.pass_at)} needs samples of at least {max(self.pass_at)}")
        return self


class CheckpointSection(Section):
    save_every: int = Field(10, ge=1, description="Global steps between checkpoints.")
    keep: int = Field(1, ge=1, description="Newest checkpoints kept per configuration and model.")
    max_gb: float | None = Field(None, gt=0, description="Byte budget for all checkpoints of the study, GB.")


class ClusterSection(Resources):
    executor: Literal["auto", "slurm", "local"] = "auto"
    poll_seconds: float = Field(60, gt=0, description="Between scheduler queries; one query serves all jobs.")
    trace_seconds: float = Field(5, gt=0, description="Between looks at the trace files.")
    missing_seconds: float = Field(120, ge=0, description="Grace before an absent job or file counts as lost.")
    stop_seconds: float = Field(120, gt=0, description="A stopped trial that has not ended by then is cancelled.")
    signal_seconds: int = Field(60, ge=1, description="Warning before the wall-time limit, seconds.")
    retries: int = Field(3, ge=0, description="Most new attempts after a wall-time limit or a lost job.")


class Study(Section):
    """A whole study file."""

    study: StudySection = StudySection()
    models: tuple[ModelSection, ...] = Field(min_length=1, description="Proxy first, target last.")
    task: TaskSection = TaskSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    recipe: str | dict[str, bool | int | float | str] = Field(
        "verl_grpo_gsm8k", description="Recipe to beat: a name under configs/recipes, a file, or the values."
    )
    space: dict[str, Dimension] | None = Field(None, description="Omitted: the ranges of the recipe's file.")
    budget: BudgetSection = BudgetSection()
    search: SearchSection = SearchSection()
    stopping: StoppingSection = StoppingSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoints: CheckpointSection = CheckpointSection()
    cluster: ClusterSection = ClusterSection()

    @property
    def target(self) -> ModelSection:
        return self.models[-1]

    def model(self, name: str) -> ModelSection:
        return next(model for model in self.models if model.name == name)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"model names must differ: {', '.join(names)}")
        if set(self.task.names) - set(get_args(ArithmeticTask)) and self.task.path is None:
            raise ValueError(f"task {', '.join(self.task.names)} needs task.path")
        pipeline = (self.space or {}).get("pipeline")
        pipelines = pipeline.choices if isinstance(pipeline, Categorical) else (self.algorithm.pipeline,)
        if self.search.kl_ceiling is not None and set(SUPERVISED).intersection(pipelines):
            raise ValueError("search.kl_ceiling needs a KL, which no pipeline of SFT alone measures; leave one out")
        if self.search.deterministic and self.checkpoints.max_gb is not None:
            raise ValueError("checkpoints.max_gb excludes search.deterministic: what it removes depends on timing")
        return self
