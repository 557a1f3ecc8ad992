"""Our losses against TRL's: its own trainers compute the same batch on the same weights, from rewards to gradients.

Nothing of TRL is copied or replaced but its sampling, which returns fixed completions. Both sides run the model by
themselves: TRL through its fused head, ours through the shared prompt.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcjf.training.forward import completion_logits
from hpcjf.training.objectives.advantages import group_advantages
from hpcjf.training.objectives.aggregate import response_scales, weighted_sum
from hpcjf.training.objectives.kl import kl_estimate
from hpcjf.training.objectives.logprobs import response_logprobs, token_logprobs
from hpcjf.training.objectives.policy_loss import policy_loss
from hpcjf.training.objectives.preference import dpo_loss, kto_kl, kto_loss, simpo_loss
from hpcjf.training.objectives.ratio import importance_ratio
from hpcjf.training.objectives.returns import penalised
from hpcjf.training.objectives.supervised import sft_loss
from hpcjf.training.objectives.table import OBJECTIVES, Kl, PolicyGradient, Preference
from hpcjf.training.rollout import left_padded
from hpcjf.training.tiny import Shape, untrained

PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17]]
GROUP = 3
COMPLETIONS = [[5, 6, 2], [7, 2], [9, 9, 9, 9, 2], [4, 2], [6, 5, 4, 2], [8, 8, 8, 8, 8, 8]]
REWARDS = [1.0, 0.25, 0.0, 0.0, 2.0, 0.5]
LIMIT = 6
BATCH = len(COMPLETIONS)


@dataclass
class Models:
    """Three sets of weights of one tiny Llama: where it is, where it sampled, and the reference, also as a folder."""

    new: Any
    old: Any
    reference: Any
    folder: str
    tokenizer: Any


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def models(tmp_path: Path) -> Models:
    old, tokenizer = untrained(Shape(0, 32, 2, 64, 0.0), seed=3)
    reference = moved(old, 0.05, 1)
    reference.save_pretrained(tmp_path / "reference")
    old.config._name_or_path = str(tmp_path / "reference")  # where TRL looks for the reference
    return Models(moved(old, 0.04, 2), old, reference, str(tmp_path), tokenizer)


def moved(model: Any, distance: float, seed: int) -> Any:
    noise = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += distance * torch.randn(parameter.shape, generator=noise)
    return other


def right_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return ids, torch.arange(width) < torch.tensor([len(row) for row in rows]).unsqueeze(1)


def our_logprobs(
    model: Any, prompts: Sequence[Sequence[int]] = PROMPTS, completions: Sequence[Sequence[int]] = COMPLETIONS
) -> Tensor:
    """``[B, T]`` of the completions, prompts being shared by neighbours."""
    prompt, prompt_mask = left_padded(prompts, 0, torch.device("cpu"))
    ids, mask = right_padded(completions)
    return token_logprobs(completion_logits(model, prompt, prompt_mask, ids, mask), ids, 1.0)


def settings(kind: Any, folder: str, **options: Any) -> Any:
    common = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True}
    return kind(**common, per_device_train_batch_size=BATCH, gradient_checkpointing=False, **options)


def sampling_trainer(models: Models, name: str, rewards: Sequence[float | None], **options: Any) -> Any:
    """TRL's trainer of ``name`` (GRPO or RLOO) at the old weights; it samples COMPLETIONS."""
    import trl
    from datasets import Dataset

    config = settings(
        getattr(trl, f"{name}Config"),
        models.folder,
        num_generations=GROUP,
        max_completion_length=LIMIT,
        num_iterations=2,  # so that the old log-probabilities are recorded
        **({"use_bias_correction_kl": False} if name == "GRPO" else {}) | options,
    )
    trainer = getattr(trl, f"{name}Trainer")(
        model=copy.deepcopy(models.old),
        reward_funcs=lambda completions, **_: list(rewards),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "1+2="}]),
        processing_class=models.tokenizer,
    )
    trainer._tokenize_prompts = lambda prompts: ([p for p in PROMPTS for _ in range(GROUP)], None, {})
    sampled = copy.deepcopy(COMPLETIONS)
    trainer._generate_single_turn = lambda *_: (sampled, None) if name == "GRPO" else sampled
    trainer.current_gradient_accumulation_steps = 1  # as the training loop sets it
    return trainer


def trl_policy_loss(models: Models, trainer: Any) -> tuple[float, Tensor, Tensor]:
    """TRL's loss at the new weights, its gradient and its advantages, from samples of the old weights."""
    trainer.model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": "1+2="}] * BATCH)
    trainer.model.load_state_dict(models.new.state_dict())
    loss = trainer.compute_loss(trainer.model, inputs)
    return *differentiated(loss, trainer.model), inputs["advantages"]


def differentiated(loss: Tensor, model: Any) -> tuple[float, Tensor]:
    model.zero_grad()
    loss.backward()
    return float(loss.detach()), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def our_policy_loss(
    models: Models, objective: PolicyGradient, rewards: Sequence[float | None], counted: Tensor | None = None
) -> tuple[float, Tensor, Tensor]:
    mask = right_padded(COMPLETIONS)[1]
    with torch.no_grad():
        old, reference = our_logprobs(models.old), our_logprobs(models.reference)
    if objective.kl.place == "reward":
        kl = kl_estimate(old, reference, mask, objective.kl.estimator)
        rewards = penalised(rewards, kl, mask, objective.kl.coefficient)
    assert objective.advantage != "returns"
    found = group_advantages(rewards, GROUP, objective.advantage)
    counted = mask & found.valid.flatten().unsqueeze(1) if counted is None else counted
    scales = response_scales(counted.sum(1), objective.aggregation, max_length=LIMIT)
    new = our_logprobs(models.new)
    loss = policy_loss(objective, new, old, found.values.flatten(), counted, scales, reference=reference)
    assert loss.clipped.any()  # else the clip range would not be compared
    return *differentiated(loss.total, models.new), found.values.flatten()


def same(ours: tuple[float, Tensor], theirs: tuple[float, Tensor]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4, abs=1e-6)
    assert float(theirs[1].abs().max()) > 1e-3
    assert float((ours[1] - theirs[1]).abs().max()) < 1e-4 * float(theirs[1].abs().max())


def policy(name: str, **changes: Any) -> PolicyGradient:
    objective = OBJECTIVES[name]
    assert isinstance(objective, PolicyGradient)
    return replace(objective, **changes)


KL = Kl("loss", 0.3, "k3")
GRPO_CASES: dict[str, tuple[PolicyGradient, dict[str, Any]]] = {
    "grpo": (policy("grpo", kl=KL), {"loss_type": "grpo", "beta": 0.3}),
    "grpo with dual clip": (policy("grpo", kl=KL, dual_clip=1.3), {"loss_type": "grpo", "beta": 0.3, "delta": 1.3}),
    "dr_grpo": (policy("dr_grpo"), {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    "dapo": (policy("dapo"), {"loss_type": "dapo", "epsilon_high": 0.28}),
    "dapo with KL": (policy("dapo", kl=KL), {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.3}),
    "gspo": (
        policy("gspo", clip_low=0.05, clip_high=0.1),  # with the paper's range all would be clipped here
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.1},
    ),
}


@pytest.mark.parametrize("case", GRPO_CASES)
def test_loss_gradient_and_advantages_are_those_of_trl_s_grpo_trainer(models: Models, case: str) -> None:
    objective, options = GRPO_CASES[case]
    theirs = trl_policy_loss(models, sampling_trainer(models, "GRPO", REWARDS, **options))
    ours = our_policy_loss(models, objective, REWARDS)
    assert ours[2].tolist() == pytest.approx(theirs[2].tolist(), abs=1e-5)
    same(ours[:2], theirs[:2])


def test_by_design_the_kl_is_not_weighted_by_the_importance_ratio_as_in_trl_by_default(models: Models) -> None:
    """TRL follows arXiv 2512.02556 there. Everywhere else in this file that option is off."""
    options = {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": True}
    theirs = trl_policy_loss(models, sampling_trainer(models, "GRPO", REWARDS, **options))
    ours = our_policy_loss(models, policy("grpo", kl=KL), REWARDS)
    with torch.no_grad():
        new, old, reference = (our_logprobs(model) for model in (models.new, models.old, models.reference))
    mask = right_padded(COMPLETIONS)[1]
    excess = kl_estimate(new, reference, mask, "k3") * (importance_ratio(new, old, mask) - 1)
    difference = 0.3 * float(weighted_sum(excess, mask, response_scales(mask.sum(1), "sequence_mean")))
    assert abs(difference) > 1e-4
    assert theirs[0] - ours[0] == pytest.approx(difference, abs=2e-6)


def test_loss_gradient_and_advantages_are_those_of_trl_s_rloo_trainer(models: Models) -> None:
    theirs = trl_policy_loss(models, sampling_trainer(models, "RLOO", REWARDS, beta=0.3))
    ours = our_policy_loss(models, policy("rloo", kl=Kl("reward", 0.3, "k1")), REWARDS)
    assert ours[2].tolist() == pytest.approx(theirs[2].tolist(), abs=1e-5)
    same(ours[:2], theirs[:2])


def test_by_design_a_response_without_reward_leaves_the_loss_where_trl_keeps_it_in_the_mean(models: Models) -> None:
    """The advantages are the same; TRL still divides by all responses, and keeps the KL of the one without reward."""
    rewards = [1.0, None, 0.0, 0.0, 2.0, 0.5]
    theirs = trl_policy_loss(models, sampling_trainer(models, "GRPO", rewards, loss_type="grpo", beta=0.0))
    ours = our_policy_loss(models, policy("grpo", kl=Kl("loss", 0.0, "k3")), rewards)
    assert ours[2].tolist() == pytest.approx(theirs[2].tolist(), abs=1e-5)
    same((ours[0] * 5 / 6, ours[1] * 5 / 6), theirs[:2])


def test_by_design_masked_responses_leave_the_mean_where_trl_counts_them_as_zero(models: Models) -> None:
    trainer = sampling_trainer(models, "GRPO", REWARDS, loss_type="grpo", beta=0.0, mask_truncated_completions=True)
    theirs = trl_policy_loss(models, trainer)
    counted = right_padded(COMPLETIONS)[1]
    counted[5] = False  # the one that reached the limit
    ours = our_policy_loss(models, policy("grpo", kl=Kl("loss", 0.0, "k3")), REWARDS, counted)
    same((ours[0] * 5 / 6, ours[1] * 5 / 6), theirs[:2])


def test_by_design_equal_rewards_have_no_advantage_where_trl_shows_float_noise(models: Models) -> None:
    rewards = [0.9] * 3 + [0.5] * 3
    trainer = sampling_trainer(models, "GRPO", rewards, loss_type="grpo", beta=0.0)
    advantages = trl_policy_loss(models, trainer)[2]
    assert 1e-5 < float(advantages.abs().max()) < 1e-2
    assert not group_advantages(rewards, GROUP).values.any()


def test_by_design_an_infinite_reward_is_left_out_where_trl_loses_its_group(models: Models) -> None:
    rewards = [1.0, math.inf, 0.0, 0.0, 2.0, 0.5]
    trainer = sampling_trainer(models, "GRPO", rewards, loss_type="grpo", beta=0.0)
    advantages = trl_policy_loss(models, trainer)[2]
    assert not bool(advantages[:3].isfinite().all() and advantages[[0, 2]].any())
    ours = group_advantages(rewards, GROUP).values
    assert ours[0].tolist() == pytest.approx([math.sqrt(0.5), 0.0, -math.sqrt(0.5)], abs=1e-3)


CHOSEN, REJECTED = COMPLETIONS[:3], COMPLETIONS[3:]
OTHERS = [*COMPLETIONS[1:], COMPLETIONS[0]]
"""Mismatched completions, as TRL's KTO makes them: each prompt gets that of its neighbour."""
ROWS = [PROMPTS[0], PROMPTS[1], PROMPTS[1]]


def joined(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Prompt and completion as one right-padded row each, as TRL's collators make them."""
    ids, mask = right_padded([[*p, *c] for p, c in zip(prompts, completions, strict=True)])
    starts = torch.tensor([len(p) for p in prompts]).unsqueeze(1)
    return {
        "input_ids": ids,
        "attention_mask": mask.long(),
        "completion_mask": (mask & (torch.arange(ids.shape[1]) >= starts)).long(),
    }


def offline_trainer(models: Models, module: Any, name: str, rows: list[dict[str, Any]], **options: Any) -> Any:
    from datasets import Dataset

    reference = options.pop("ref_model", None)
    config = settings(getattr(module, f"{name}Config"), models.folder, **options)
    trainer = getattr(module, f"{name}Trainer")(
        model=copy.deepcopy(models.new),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=models.tokenizer,
        **({"ref_model": copy.deepcopy(reference)} if reference else {}),
    )
    trainer.model.train()
    return trainer


def mean(losses: Tensor) -> Tensor:
    valid = torch.ones(len(losses), 1, dtype=torch.bool)
    return weighted_sum(losses.unsqueeze(1), valid, response_scales(valid.sum(1), "token_mean"))


def our_responses(
    model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, mean: bool = False
) -> Tensor:
    mask = right_padded(completions)[1]
    return response_logprobs(our_logprobs(model, prompts, completions), mask, mean=mean)


def preference(name: str) -> Preference:
    objective = OBJECTIVES[name]
    assert isinstance(objective, Preference)
    return objective


PAIR = [{"prompt": "1+2=", "chosen": "3", "rejected": "4"}]


def test_sft_is_that_of_trl(models: Models) -> None:
    import trl

    trainer = offline_trainer(models, trl, "SFT", [{"prompt": "1+2=", "completion": "3"}])
    batch = joined(ROWS + ROWS, COMPLETIONS)
    labels = batch["input_ids"].masked_fill(batch.pop("completion_mask") == 0, -100)
    theirs = differentiated(trainer.compute_loss(trainer.model, batch | {"labels": labels}), trainer.model)
    mask = right_padded(COMPLETIONS)[1]
    logprobs = our_logprobs(models.new, ROWS + ROWS)
    loss = sft_loss(logprobs, mask, response_scales(mask.sum(1), "token_mean"))
    same(differentiated(loss, models.new), theirs)


def test_dpo_is_that_of_trl(models: Models) -> None:
    import trl

    beta = preference("dpo").beta
    trainer = offline_trainer(models, trl, "DPO", PAIR, beta=beta, ref_model=models.reference)
    batch = joined(ROWS + ROWS, [*CHOSEN, *REJECTED])
    theirs = differentiated(trainer.compute_loss(trainer.model, batch), trainer.model)
    chosen, rejected = (our_responses(models.new, ROWS, part) for part in (CHOSEN, REJECTED))
    with torch.no_grad():
        references = [our_responses(models.reference, ROWS, part) for part in (CHOSEN, REJECTED)]
    losses, margins = dpo_loss(chosen, rejected, *references, beta)
    same(differentiated(mean(losses), models.new), theirs)
    logged = trainer._metrics["train"]
    assert float(margins.mean()) == pytest.approx(logged["rewards/margins"][-1], rel=1e-3, abs=1e-6)
    assert float((margins > 0).float().mean()) == pytest.approx(logged["rewards/accuracies"][-1])


@pytest.mark.parametrize("positive", [False, True])
def test_kto_is_that_of_trl(models: Models, positive: bool) -> None:
    """On either side of the bound at 0 that the reference point has."""
    import trl

    reference = models.reference if positive else moved(models.old, 0.05, 7)
    beta, balance, labels = preference("kto").beta, (1.5, 0.5), [True, False, True, False, False, True]
    rows = [{"prompt": "1+2=", "completion": "3", "label": label} for label in (True, False)]
    trainer = offline_trainer(
        models,
        trl,
        "KTO",
        rows,
        beta=beta,
        desirable_weight=balance[0],
        undesirable_weight=balance[1],
        train_sampling_strategy="sequential",
        ref_model=reference,
    )
    batch = joined(ROWS + ROWS, COMPLETIONS) | {"label": torch.tensor(labels)}
    batch |= {f"KL_{key}": value for key, value in joined(ROWS + ROWS, OTHERS).items()}
    theirs = differentiated(trainer.compute_loss(trainer.model, batch), trainer.model)
    with torch.no_grad():
        kl = kto_kl(*(our_responses(model, ROWS + ROWS, OTHERS) for model in (models.new, reference)))
        wanted = our_responses(reference, ROWS + ROWS, COMPLETIONS)
    own = our_responses(models.new, ROWS + ROWS, COMPLETIONS)
    losses, _ = kto_loss(own, wanted, torch.tensor(labels), kl, beta, balance)
    assert (kl > 0) == positive
    assert kl == pytest.approx(trainer._metrics["train"]["kl"][-1], rel=1e-3)
    same(differentiated(mean(losses), models.new), theirs)


def test_simpo_is_that_of_trl(models: Models) -> None:
    from trl.experimental import cpo

    objective = preference("simpo")
    options: dict[str, Any] = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": objective.margin}
    trainer = offline_trainer(models, cpo, "CPO", PAIR, beta=objective.beta, **options)
    batch: dict[str, Tensor] = {}
    for side, completions in (("chosen", CHOSEN), ("rejected", REJECTED)):
        rows = joined(ROWS, completions)
        labels = rows["input_ids"].masked_fill(rows["completion_mask"] == 0, -100)
        batch |= {f"{side}_input_ids": rows["input_ids"], f"{side}_attention_mask": rows["attention_mask"]}
        batch[f"{side}_labels"] = labels
    theirs = differentiated(trainer.compute_loss(trainer.model, batch), trainer.model)
    chosen, rejected = (our_responses(models.new, ROWS, part, mean=True) for part in (CHOSEN, REJECTED))
    losses, _ = simpo_loss(chosen, rejected, objective.beta, objective.margin)
    same(differentiated(mean(losses), models.new), theirs)
