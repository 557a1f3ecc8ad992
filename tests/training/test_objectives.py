"""The trainer under every policy-gradient objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file

from hpcjf.errors import TrainingError
from hpcjf.store.traces import OBJECTIVE_COLUMNS, TRACE_COLUMNS
from hpcjf.study import ObjectiveName
from hpcjf.tasks.base import Row
from hpcjf.training.learner import at_start
from hpcjf.training.trainer import Trainer

Make = Callable[..., Trainer]
OBJECTIVES = get_args(ObjectiveName)
PREFERENCES = ("dpo", "kto", "simpo")
EXTRA = {
    **{name: {"pairs", "margin", "margin_accuracy"} for name in PREFERENCES},
    "dapo": {"redraws", "groups"},
    "ppo": {"value_loss"},
    "hargo": {column.name for column in OBJECTIVE_COLUMNS if column.name.startswith("hargo_")},
}


def weights(trainer: Trainer) -> list[torch.Tensor]:
    head = trainer.rl.head.parameters() if trainer.rl.head else ()
    return [parameter.detach().clone() for parameter in (*trainer.policy.parameters(), *head)]


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


def train(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    return [trainer.train_step() for _ in range(steps)]


class Scores:
    """The share of ones among the first four characters, or a constant that a test sets between steps."""

    def __init__(self, constant: float | str | None = "none") -> None:
        self.constant = constant

    def __call__(self, rows: Sequence[Row], responses: Sequence[str]) -> list[float | None]:
        if isinstance(self.constant, str):
            return [response[:4].count("1") / 4 for response in responses]
        return [self.constant] * len(responses)


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_objective_trains_from_kl_zero_and_reports_its_own_figures(
    make_trainer: Make, name: str, adapter: str
) -> None:
    trainer = make_trainer(adapter, objective=name, kl_coef=None)
    before = weights(trainer)
    first, second = train(trainer, 2)
    common = {column.name for column in TRACE_COLUMNS} - {"seq", "step", "time", "cpu_seconds", "eval_score"}
    assert set(first) == common | EXTRA.get(name, set())
    missing = {name for metrics in (first, second) for name, value in metrics.items() if not math.isfinite(value)}
    assert missing == ({"clip_fraction"} if name in PREFERENCES else set())
    assert first["skipped"] == second["skipped"] == 0
    assert second["kl"] > 0
    changed = [not torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True)]
    assert all(changed)
    once = make_trainer(adapter, objective=name, kl_coef=None, minibatches=1).train_step()
    assert once["kl"] == 0
    assert name in PREFERENCES or once["clip_fraction"] == 0


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_exact_resume_of_every_objective_past_the_first_epoch(
    make_trainer: Make, tmp_path: Path, name: str, adapter: str
) -> None:
    """Ten rows and four prompts a step: the third step crosses an epoch's end. Two minibatches clip."""
    settings: dict[str, Any] = {"objective": name, "kl_coef": None, "lr_scheduler": "cosine", "learning_rate": 1e-2}
    whole, part = make_trainer(adapter, **settings), make_trainer(adapter, **settings)
    expected, found = train(whole, 5), train(part, 3)
    part.save(tmp_path)
    part = make_trainer(adapter, **settings)
    part.load(tmp_path)
    assert repr(found + train(part, 2)) == repr(expected)
    assert same(weights(part), weights(whole))
    assert part.rl.level == whole.rl.level
    if name not in ("rloo", *PREFERENCES):  # its ratio of whole responses moves little at this size
        assert max(metrics["clip_fraction"] for metrics in expected) > 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_pieces_of_any_size_give_the_same_update(make_trainer: Make, name: str) -> None:
    found = []
    for size in (64, 4, 3):
        trainer = make_trainer(objective=name, kl_coef=None, micro_batch=size, learning_rate=1e-4)
        found.append([metrics["grad_norm"] for metrics in train(trainer, 2)])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert found[2] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("constant", [None, math.nan, math.inf])
def test_a_step_without_a_finite_reward_moves_nothing_under_any_objective(
    make_trainer: Make, name: str, constant: float | None
) -> None:
    score = Scores()
    trainer = make_trainer(score=score, objective=name, weight_decay=0.1)
    train(trainer, 2)  # Adam has momentum now
    before, score.constant = weights(trainer), constant
    metrics = trainer.train_step()
    assert same(weights(trainer), before)
    assert metrics["skipped"] == 1
    assert all(math.isnan(metrics[key]) for key in ("kl", "entropy", "loss", "grad_norm"))


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_equal_rewards_move_nothing_before_the_first_update(make_trainer: Make, name: str, adapter: str) -> None:
    """The KL is 0 there, and must not come in as rounding that Adam blows up."""
    trainer = make_trainer(adapter, score=Scores(0.0), objective=name)
    before = weights(trainer)
    metrics = trainer.train_step()
    assert metrics["skipped"] == 1
    if name in PREFERENCES:
        assert metrics["pairs"] == 0
        assert all(math.isnan(metrics[key]) for key in ("grad_norm", "kl", "margin"))
    else:
        assert metrics["grad_norm"] == metrics["kl"] == 0
    assert same(weights(trainer), before)


def test_passes_that_differ_by_rounding_are_one_model_and_others_are_not() -> None:
    counted = torch.tensor([[True, True, False]])
    logprobs = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    found = at_start(logprobs, torch.tensor([[-1.0, -2.0 + 2e-7, math.nan]]), counted)
    assert torch.equal(found, logprobs.detach())
    for other in (-2.0 + 1e-4, math.nan):
        with pytest.raises(TrainingError, match=r"KL to the reference is not 0 before the first update"):
            at_start(logprobs, torch.tensor([[-1.0, other, -3.0]]), counted)


@pytest.mark.parametrize("name", ["rloo", "ppo", "hargo"])
def test_another_reference_is_refused_by_objectives_that_look_at_it_first(make_trainer: Make, name: str) -> None:
    trainer = make_trainer(objective=name)
    with torch.no_grad():
        trainer.policy.parameters()[0].mul_(1.01)
    with pytest.raises(TrainingError, match="before the first update"):
        trainer.train_step()


def test_a_kl_in_the_reward_holds_the_policy_back_as_one_in_the_loss_does(make_trainer: Make) -> None:
    for place in ("loss", "reward"):
        free, held = (
            train(make_trainer(objective="rloo", kl_in=place, kl_coef=beta, learning_rate=5e-3, rollouts=8), 12)
            for beta in (0.0, 2.0)
        )
        assert sum(m["kl"] for m in held[6:]) < sum(m["kl"] for m in free[6:])


class TestDynamicSampling:
    @staticmethod
    def every_second(rows: Sequence[Row], responses: Sequence[str]) -> list[float | None]:
        """A signal for rows with an even first number, by place."""
        return [float(i % 2) if int(row.prompt[:2]) % 2 == 0 else 0.0 for i, row in enumerate(rows)]

    def test_groups_without_signal_are_drawn_anew(self, make_trainer: Make) -> None:
        trainer = make_trainer(score=self.every_second, rows=200, objective="dapo")
        found = train(trainer, 4)
        assert max(metrics["redraws"] for metrics in found) > 0
        for metrics in found:
            assert metrics["groups"] == 4 or metrics["redraws"] == 3
            assert metrics["zero_variance_fraction"] <= 1 - metrics["groups"] / (4 * (1 + metrics["redraws"]))
            assert 16 * (1 + metrics["redraws"]) <= metrics["tokens"] <= 16 * 5 * (1 + metrics["redraws"])

    def test_draws_are_bounded_and_without_any_signal_the_step_is_skipped(self, make_trainer: Make) -> None:
        calls: list[list[str]] = []

        def flat(rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
            calls.append([row.key for row in rows])
            return [1.0] * len(responses)

        trainer = make_trainer(score=flat, rows=200, objective="dapo", kl_coef=0.0, max_redraws=2)
        metrics = trainer.train_step()
        assert len(calls) == 3
        assert len({tuple(keys) for keys in calls}) == 3
        assert metrics["redraws"] == 2
        assert metrics["skipped"] == metrics["zero_variance_fraction"] == 1
        assert metrics["entropy"] > 0
        again = make_trainer(score=flat, rows=200, objective="dapo", kl_coef=0.0, max_redraws=2)
        assert again.train_step() == metrics
        assert calls[3:] == calls[:3]

    def test_fewer_groups_than_minibatches_are_enough(self, make_trainer: Make) -> None:
        def one(rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
            return [float(i == 0) for i in range(len(responses))]

        metrics = make_trainer(score=one, objective="dapo", max_redraws=1, minibatches=4).train_step()
        assert (metrics["groups"], metrics["redraws"], metrics["skipped"]) == (2, 1, 0)

    def test_resume_is_exact_through_redraws(self, make_trainer: Make, tmp_path: Path) -> None:
        whole, part = (make_trainer(score=self.every_second, objective="dapo") for _ in range(2))
        expected = train(whole, 4)
        found = train(part, 2)
        part.save(tmp_path)
        part = make_trainer(score=self.every_second, objective="dapo")
        part.load(tmp_path)
        assert found + train(part, 2) == expected
        assert max(metrics["redraws"] for metrics in expected) > 0
        assert same(weights(part), weights(whole))

    def test_it_may_be_switched_off_and_on(self, make_trainer: Make) -> None:
        assert "redraws" not in make_trainer(objective="dapo", dynamic_sampling=False).train_step()
        assert "redraws" in make_trainer(objective="ppo", dynamic_sampling=True).train_step()


class TestPpo:
    def test_the_value_head_learns_with_its_own_rate_and_stays_out_of_the_policy(
        self, make_trainer: Make, tmp_path: Path
    ) -> None:
        trainer = make_trainer(score=Scores(1.0), objective="ppo", value_lr_factor=5.0, minibatches=1)
        first = trainer.train_step()
        assert [group["lr"] for group in trainer.rl.optimiser._adam.param_groups] == [1e-3, 5e-3]
        assert trainer.rl.head is not None
        assert float(trainer.rl.head.linear.bias.detach().abs()) == pytest.approx(5e-3, rel=1e-3)  # Adam's first step
        assert train(trainer, 10)[-1]["value_loss"] < 0.8 * first["value_loss"]
        trainer.export(tmp_path)
        assert not [name for name in load_file(tmp_path / "model.safetensors") if "linear" in name]

    def test_a_policy_without_gradient_stays_while_the_head_learns(self, make_trainer: Make) -> None:
        """One token each and one reward: all advantages are equal, only the value is off."""
        trainer = make_trainer(
            objective="ppo", score=Scores(1.0), max_new_tokens=1, minibatches=1, weight_decay=0.5, kl_coef=0.0
        )
        before = weights(trainer)
        metrics = trainer.train_step()
        after = weights(trainer)
        assert same(after[:-2], before[:-2])
        assert not same(after[-2:], before[-2:])
        assert metrics["skipped"] == 0

    def test_a_checkpoint_without_the_head_is_refused(self, make_trainer: Make, tmp_path: Path) -> None:
        trainer = make_trainer(objective="ppo")
        trainer.save(tmp_path)
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        del state["rl"]["head"]
        torch.save(state, tmp_path / "state.pt")
        with pytest.raises(TrainingError, match="does not fit"):
            trainer.load(tmp_path)

    def test_the_head_sees_the_state_before_each_token(self, make_trainer: Make) -> None:
        from hpcjf.training.pieces import Piece

        trainer = make_trainer(objective="ppo")
        assert trainer.rl.head is not None
        with torch.no_grad():
            trainer.rl.head.linear.weight.normal_(generator=torch.Generator().manual_seed(0))
            prompt, ids = torch.tensor([[4, 5, 6], [0, 7, 8]]), torch.tensor([[9, 10, 11, 4]] * 4)
            mask = torch.tensor([[True] * 3, [False, True, True]])
            piece = Piece(slice(0, 4), prompt, mask, ids, torch.ones(4, 4, dtype=torch.bool))
            values = trainer.rl.learner.act(piece).values
            assert values is not None
            for row, whole in ((0, [4, 5, 6, 9, 10, 11]), (3, [7, 8, 9, 10, 11])):
                hidden = trainer.policy.model(torch.tensor([whole]), output_hidden_states=True).hidden_states[-1]
                assert torch.allclose(values[row], trainer.rl.head(hidden)[0, -4:], atol=1e-5)


class TestHargo:
    def test_signals_are_logged_and_the_weights_are_not_grpo_s(self, make_trainer: Make) -> None:
        for metrics in train(make_trainer(objective="hargo"), 3):
            assert 0 < metrics["hargo_confidence_mean"] < 1
            assert metrics["hargo_confidence_spread"] > 0
            assert 0 <= metrics["hargo_distinction_mean"] <= 1
            assert metrics["hargo_weight_mean"] == pytest.approx(1 / 4)
            assert metrics["hargo_fallback"] == metrics["zero_variance_fraction"]
            assert metrics["hargo_weight_spread"] > 0
            assert metrics["hargo_level"] < 0

    def test_the_running_level_goes_on_from_a_checkpoint(self, make_trainer: Make, tmp_path: Path) -> None:
        trainer = make_trainer(objective="hargo", hargo_rho=0.5)
        first, second = (metrics["hargo_level"] for metrics in train(trainer, 2))
        trainer.save(tmp_path)
        other = make_trainer(objective="hargo", hargo_rho=0.5)
        other.load(tmp_path)
        assert first != second == other.rl.level
        assert other.train_step()["hargo_level"] == trainer.train_step()["hargo_level"]

    def test_ablations_are_settings(self, make_trainer: Make) -> None:
        found = {}
        for name, settings in {
            "B1": {"hargo_alpha": 0.0},
            "B2": {"hargo_weights": "confidence"},
            "B3": {},
        }.items():
            trainer = make_trainer(objective="hargo", **settings)
            found[name] = trainer.train_step(), weights(trainer)
        assert found["B1"][0]["hargo_advantage_spread"] == found["B2"][0]["hargo_advantage_spread"]  # A' = A
        assert found["B3"][0]["hargo_advantage_spread"] > found["B1"][0]["hargo_advantage_spread"]
        assert not same(found["B1"][1], found["B2"][1])
        assert not same(found["B1"][1], found["B3"][1])

    @pytest.mark.parametrize(("settings", "skipped"), [({}, 0), ({"hargo_flat_kl": False}, 1), ({"kl_coef": 0.0}, 1)])
    def test_equal_rewards_keep_the_kl_unless_told_otherwise(
        self, make_trainer: Make, settings: dict[str, Any], skipped: int
    ) -> None:
        score = Scores()
        trainer = make_trainer(score=score, objective="hargo", **settings)
        train(trainer, 2)
        before, score.constant = weights(trainer), 0.5
        metrics = trainer.train_step()
        assert metrics["hargo_fallback"] == 1
        assert metrics["hargo_weight_spread"] == 0
        assert metrics["skipped"] == skipped
        assert same(weights(trainer), before) is bool(skipped)
