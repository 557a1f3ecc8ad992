"""SFT, SFT and RL one after the other, and both averaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from hpcjf.core.stopping import decide
from hpcjf.errors import TrainingError
from hpcjf.study import Pipeline, StoppingSection
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.base import Row
from hpcjf.training.demonstrations import Demonstrations
from hpcjf.training.policy import Policy
from hpcjf.training.trainer import Trainer
from hpcjf.worker.session import diverged

Make = Callable[..., Trainer]
FAST: dict[str, Any] = {"sft_learning_rate": 1e-2, "sft_batch": 6, "learning_rate": 1e-2}


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.policy.parameters()]


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


def train(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    return [trainer.train_step() for _ in range(steps)]


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("objective", ["grpo", "ppo", "dpo"])
@pytest.mark.parametrize("pipeline", get_args(Pipeline))
def test_exact_resume_of_every_pipeline_at_every_save_point(
    make_trainer: Make, tmp_path: Path, pipeline: str, objective: str, adapter: str
) -> None:
    """With 20 steps and a share of 0.1 the third step is the first of RL; ten rows end an epoch within it."""
    settings = FAST | {"pipeline": pipeline, "objective": objective, "lr_scheduler": "cosine", "sft_share": 0.1}
    whole = make_trainer(adapter, **settings)
    found = []
    for step in range(5):
        part = make_trainer(adapter, **settings)
        if step:
            part.load(tmp_path / str(step - 1))
        found.append(part.train_step())
        part.save(tmp_path / str(step))
    assert repr(found) == repr(train(whole, 5))
    assert same(weights(part), weights(whole))


class TestSft:
    def test_the_loss_is_that_of_the_response_alone_and_falls(self, make_trainer: Make) -> None:
        found = train(make_trainer(pipeline="sft", **FAST), 20)
        assert found[0]["loss"] == found[0]["sft_loss"] == pytest.approx(math.log(19), rel=0.1)  # an untrained model
        assert found[-1]["loss"] < 0.7 * found[0]["loss"]
        assert all(metrics["tokens"] == 6 * 4 for metrics in found)  # three digits and the end
        assert found[0]["learning_rate"] == 1e-2

    def test_what_it_does_not_measure_is_null_and_stops_nothing(self, make_trainer: Make) -> None:
        found = train(make_trainer(pipeline="sft", **FAST), 12)
        null = {name for name, value in found[0].items() if math.isnan(value)}
        assert null == {
            "kl", "reward_mean", "reward_std", "clip_fraction", "zero_variance_fraction", "response_length",
            "truncated_fraction",
        }  # fmt: skip
        assert not any(map(diverged, found))
        rows: Any = {name: [metrics[name] for metrics in found] for name in found[0]} | {"step": range(1, 13)}
        for rule in ("robust", "paper"):
            assert decide(rows, StoppingSection(rule=rule)) is None

    def test_gold_takes_all_references(self, policy: Policy) -> None:
        row = replace(split_rows()[0][0], references=("1", "23", "456"))

        def texts(every: bool) -> set[str]:
            options: dict[str, Any] = {"size": 3, "max_tokens": 9, "seed": 0}
            batch = Demonstrations(policy, [row], lambda row, tokenizer: [4, 5], every=every, **options).batch(0)
            ids = [ids[mask].tolist() for ids, mask in zip(batch.completion_ids, batch.completion_mask, strict=True)]
            assert all(each[-1] == policy.tokenizer.eos_token_id for each in ids)
            return set(policy.tokenizer.batch_decode(ids, skip_special_tokens=True))

        assert texts(every=False) == {"1"}
        assert texts(every=True) == {"1", "23", "456"}

    def test_rows_without_references_are_refused(self, make_trainer: Make, policy: Policy) -> None:
        row = replace(split_rows()[0][0], references=())
        with pytest.raises(TrainingError, match="no training row has a reference"):
            Demonstrations(policy, [row], lambda row, tokenizer: [4], every=True, size=1, max_tokens=3, seed=0)

    def test_long_ones_are_cut_and_counted(self, policy: Policy) -> None:
        row = split_rows()[0][0]
        batch = Demonstrations(policy, [row], lambda row, tokenizer: [4], every=False, size=1, max_tokens=2, seed=0)
        assert batch.batch(0).completion_ids.shape == (1, 2)
        assert batch.batch(0).truncated.all()


class TestSftThenRl:
    def test_rl_starts_from_its_own_reference_with_fresh_moments(self, make_trainer: Make) -> None:
        for adapter in ("none", "lora"):
            trainer = make_trainer(adapter, pipeline="sft_then_rl", sft_share=0.25, horizon=8, minibatches=1, **FAST)
            supervised = train(trainer, 2)
            assert all(math.isnan(metrics["kl"]) for metrics in supervised)
            first, second = train(trainer, 2)
            assert first["kl"] == 0.0
            assert second["kl"] > 0
            assert first["learning_rate"] == 1e-2

    def test_its_second_part_is_rl_from_the_exported_end_of_its_first(self, make_trainer: Make, tmp_path: Path) -> None:
        """The same prompts and draws, but for the number of the step they belong to."""
        trainer = make_trainer(pipeline="sft_then_rl", sft_share=0.25, horizon=8, **FAST)
        train(trainer, 2)
        trainer.export(tmp_path)
        alone = make_trainer(path=tmp_path, **FAST)
        alone.step = 2
        assert repr(train(trainer, 2)) == repr(train(alone, 2))
        assert same(weights(trainer), weights(alone))


class TestParallel:
    def test_with_all_weight_on_rl_it_is_rl_bit_for_bit(self, make_trainer: Make) -> None:
        for objective in ("grpo", "ppo", "simpo"):
            alone = make_trainer(objective=objective, **FAST)
            both = make_trainer(objective=objective, pipeline="parallel", parallel_weight=1.0, **FAST)
            assert [m["kl"] for m in train(alone, 3)] == [m["kl"] for m in train(both, 3)]
            assert same(weights(alone), weights(both))

    def test_without_weight_on_rl_it_is_sft_bit_for_bit(self, make_trainer: Make) -> None:
        alone = make_trainer(pipeline="sft", **FAST)
        both = make_trainer(pipeline="parallel", parallel_weight=0.0, minibatches=1, **FAST)
        assert [m["loss"] for m in train(alone, 3)] == [m["loss"] for m in train(both, 3)]
        assert same(weights(alone), weights(both))

    def test_the_step_is_the_average_of_two_updates_from_one_snapshot(self, make_trainer: Make) -> None:
        settings = FAST | {"minibatches": 1}
        start = weights(make_trainer(**settings))
        ends = {}
        for pipeline in ("rl", "sft", "parallel"):
            trainer = make_trainer(pipeline=pipeline, parallel_weight=0.3, **settings)
            trainer.train_step()
            ends[pipeline] = weights(trainer)
        for before, rl, sft, both in zip(start, *(ends[name] for name in ("rl", "sft", "parallel")), strict=True):
            expected = before + 0.3 * (rl - before) + 0.7 * (sft - before)
            assert torch.allclose(both, expected, atol=1e-6)

    def test_it_is_not_one_adam_on_the_summed_loss(self, make_trainer: Make) -> None:
        settings = FAST | {"minibatches": 1, "grad_clip": 1e9}
        one, both, rl, sft = (
            make_trainer(pipeline=pipeline, **settings) for pipeline in ("rl", "parallel", "rl", "sft")
        )
        for trainer in (both, rl, sft):
            trainer.train_step()
        parameters = one.policy.parameters()
        for parameter, *parts in zip(parameters, rl.policy.parameters(), sft.policy.parameters(), strict=True):
            parameter.grad = sum(part.grad for part in parts)
        torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0).step()
        distances = torch.cat([(a - b).abs().flatten() for a, b in zip(weights(one), weights(both), strict=True)])
        # Adam's first step has the gradient's sign: where the two disagree, their average stands still
        assert float((distances > 0.9e-2).double().mean()) > 0.2

    def test_a_batch_without_reward_still_imitates(self, make_trainer: Make) -> None:
        def nothing(rows: Sequence[Row], responses: Sequence[str]) -> list[None]:
            return [None] * len(rows)

        trainer = make_trainer(score=nothing, pipeline="parallel", **FAST)
        before = weights(trainer)
        metrics = trainer.train_step()
        assert metrics["skipped"] == 0
        assert math.isnan(metrics["kl"])
        assert metrics["loss"] == pytest.approx(metrics["sft_loss"] / 2)
        assert not diverged(metrics)
        assert not same(weights(trainer), before)
        rows: Any = {name: [value] for name, value in metrics.items()} | {"step": [1]}
        assert decide(rows, StoppingSection()) is None
        assert trainer.rl is not None
        assert trainer.rl.optimiser.taken == 0
