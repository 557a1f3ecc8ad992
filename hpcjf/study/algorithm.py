"""How a trial trains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpcjf.study.base import Section

ObjectiveName = Literal[
    "grpo", "dr_grpo", "dapo", "gspo", "rloo", "reinforce_pp", "ppo", "hargo", "dpo", "kto", "simpo"
]
Pipeline = Literal["rl", "sft", "sft_gold", "sft_then_rl", "parallel"]
SUPERVISED: tuple[Pipeline, ...] = ("sft", "sft_gold")
"""Pipelines that never sample: no reward and no KL is measured in them."""


class AlgorithmSection(Section):
    """Fixed settings of training; what the search varies stands under ``space``.

    Where null is allowed it means the objective's default, which docs/objectives.md lists. What an objective has no
    part for does nothing, so that one study can search over objectives.
    """

    pipeline: Pipeline = Field(
        "rl",
        description="RL on rewards, SFT on one or on all (gold) references, one after the other, or both averaged.",
    )
    objective: ObjectiveName = Field("grpo", description="Objective of the RL part.")
    prompts_per_step: int = Field(16, ge=1, description="Prompts of one rollout batch, i.e. of one global step.")
    minibatches: int = Field(2, ge=1, description="Optimiser updates per rollout batch; with 1 the clip range is dead.")
    max_new_tokens: int = Field(256, ge=1)
    temperature: float = Field(1.0, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup_steps: int = Field(0, ge=0)
    eval_every: int = Field(10, ge=1, description="Global steps between evaluations on the validation rows.")
    eval_batch: int = Field(64, ge=1)
    micro_batch: int = Field(64, ge=1, description="Completions per forward and backward pass.")
    learning_rate: float = Field(1e-6, gt=0)
    lr_scheduler: Literal["constant", "cosine"] = "constant"
    clip_range: float | None = Field(None, gt=0, description="Largest distance of the importance ratio below 1.")
    clip_range_high: float | None = Field(
        None, gt=0, description="The same above 1; null = clip_range, times 1.4 in dapo and 4/3 in gspo."
    )
    dual_clip: float | None = Field(None, gt=1, description="Largest ratio where the advantage is negative.")
    grad_clip: float = Field(1.0, gt=0)
    kl_coef: float | None = Field(None, ge=0)
    kl_estimator: Literal["k1", "k2", "k3"] | None = Field(
        None, description="Of the KL that is trained on; the trace always has k3."
    )
    kl_in: Literal["loss", "reward"] | None = None
    rollouts: int = Field(5, ge=2, description="Completions per prompt (the group size G).")
    dynamic_sampling: bool | None = Field(
        None, description="Draw further prompts in the place of groups whose rewards are all equal."
    )
    max_redraws: int | None = Field(None, ge=1, description="Most further batches of prompts that one step draws.")
    value_coef: float | None = Field(None, ge=0, description="ppo: coefficient of the value head's loss.")
    value_clip: float | None = Field(None, gt=0, description="ppo: largest step of a value within a rollout batch.")
    value_lr_factor: float | None = Field(
        None, gt=0, description="ppo: learning rate of the value head over learning_rate."
    )
    gae_lambda: float | None = Field(None, ge=0, le=1, description="ppo: decay of the advantage estimate.")
    hargo_alpha: float | None = Field(None, ge=0, description="hargo: how much confidence scales an advantage.")
    hargo_rho: float | None = Field(None, ge=0, lt=1, description="hargo: decay of the running log-probability.")
    hargo_weights: Literal["advantage", "confidence"] | None = Field(
        None, description="hargo: what weights come from; confidence is the paper's ablation B2."
    )
    hargo_weighted_kl: bool | None = Field(None, description="hargo: put the KL inside the weighting.")
    hargo_flat_kl: bool | None = Field(None, description="hargo: keep the KL of groups whose rewards are all equal.")
    preference_beta: float | None = Field(None, gt=0, description="dpo, kto, simpo: scale of the implied reward.")
    preference_margin: float | None = Field(None, ge=0, description="simpo: target margin between the two responses.")
    sampler: Literal["transformers", "vllm"] = Field("transformers", description="vllm needs a GPU and hpcjf[vllm].")
    vllm_memory: float = Field(0.3, gt=0, lt=1, description="Share of the GPU's memory that vLLM may take.")
    sft_learning_rate: float = Field(2e-5, gt=0, description="Peak learning rate of the SFT part.")
    sft_batch: int = Field(16, ge=1, description="Demonstrations per update of the SFT part.")
    sft_share: float = Field(0.3, gt=0, lt=1, description="sft_then_rl: share of the full budget that is SFT.")
    parallel_weight: float = Field(
        0.5, ge=0, le=1, description="parallel: weight of the RL update in the average; 1 is RL alone."
    )
