"""Each reason is held against what training computes."""

from __future__ import annotations

from typing import Any

import pytest

from hpcjf.analysis.dead import dead_dimensions
from hpcjf.study import Study

SPACE: dict[str, Any] = {
    "learning_rate": {"type": "real", "low": 1e-6, "high": 1e-2, "log": True},
    "lr_scheduler": {"type": "categorical", "choices": ["constant", "cosine"]},
    "clip_range": {"type": "real", "low": 0.1, "high": 0.4},
    "grad_clip": {"type": "real", "low": 1e6, "high": 1e9},
    "kl_coef": {"type": "real", "low": 0.0, "high": 0.1},
    "rollouts": {"type": "integer", "low": 2, "high": 3},
}


def dead(space: dict[str, Any] | None = None, **sections: Any) -> dict[str, str]:
    models = [{"name": "s", "path": "builtin:tiny-s"}]
    return dead_dimensions(Study.model_validate({"models": models, "space": SPACE | (space or {})} | sections))


def test_what_may_have_an_effect_is_alive() -> None:
    assert dead() == {}, "a large gradient clip may still clip"


def test_one_update_per_batch_clips_nothing() -> None:
    found = dead(algorithm={"minibatches": 1})
    assert list(found) == ["clip_range"]
    assert "algorithm.minibatches is 1" in found["clip_range"]


@pytest.mark.parametrize(
    ("warmup", "steps", "names"),
    [(0, 1, ["lr_scheduler"]), (0, 2, []), (8, 9, ["lr_scheduler"]), (7, 9, []), (20, 9, ["lr_scheduler"])],
)
def test_a_schedule_that_ends_with_the_warm_up(warmup: int, steps: int, names: list[str]) -> None:
    from hpcjf.training.schedule import rate_factor

    rates = [{rate_factor(kind, taken, warmup, steps) for kind in ("constant", "cosine")} for taken in range(steps)]
    assert all(len(both) == 1 for both in rates) is bool(names)
    assert list(dead(algorithm={"warmup_steps": warmup}, budget={"min": 1, "max": steps})) == names


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        ({"type": "categorical", "choices": [0, 0.0]}, "0.0"),
        ({"type": "categorical", "choices": [0.1, 0.1]}, "0.1"),
        ({"type": "real", "low": 0.1, "high": 0.1 + 1e-14}, "0.1"),
    ],
)
def test_a_dimension_of_one_value(dimension: dict[str, Any], value: str) -> None:
    assert dead({"kl_coef": dimension}) == {"kl_coef": f"training takes {value} for all of its values"}


REAL = {"type": "real", "low": 0.0, "high": 0.9}
RATE = {"type": "real", "low": 1e-6, "high": 1e-2, "log": True}
SHARE = {"type": "real", "low": 0.1, "high": 0.9}
ONE_UP = {"type": "real", "low": 1.5, "high": 3.0}


def category(*choices: Any) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(choices)}


@pytest.mark.parametrize(
    ("algorithm", "space", "names"),
    [
        ({}, {"hargo_alpha": REAL, "gae_lambda": REAL, "kl_in": category("loss", "reward")}, "gae_lambda hargo_alpha"),
        ({"objective": "ppo"}, {"hargo_alpha": REAL, "gae_lambda": REAL, "value_coef": REAL}, "hargo_alpha"),
        ({"objective": "ppo", "value_coef": 0.0}, {"gae_lambda": REAL, "value_clip": ONE_UP}, "value_clip"),
        ({"minibatches": 1}, {"clip_range_high": ONE_UP, "dual_clip": ONE_UP}, "clip_range clip_range_high dual_clip"),
        ({"clip_range_high": 0.3}, {"dual_clip": ONE_UP}, ""),
        ({"objective": "hargo"}, {"hargo_rho": REAL, "hargo_weights": category("advantage", "confidence")}, ""),
        ({"objective": "hargo", "hargo_alpha": 0.0}, {"hargo_rho": REAL}, "hargo_rho"),
        ({"objective": "hargo", "hargo_weights": "confidence"}, {"hargo_alpha": REAL}, "hargo_alpha"),
        (
            {"objective": "hargo"},
            {"hargo_alpha": REAL, "hargo_weights": category("advantage", "confidence")},
            "",
        ),
        ({"objective": "hargo"}, {"kl_in": category("loss", "reward"), "hargo_flat_kl": category(True, False)}, ""),
        ({"objective": "hargo", "kl_in": "reward"}, {"hargo_flat_kl": category(True, False)}, "hargo_flat_kl"),
        (
            {},
            {"sft_learning_rate": RATE, "parallel_weight": REAL, "sft_share": SHARE, "preference_beta": ONE_UP},
            "parallel_weight preference_beta sft_learning_rate sft_share",
        ),
        ({"pipeline": "sft"}, {"sft_learning_rate": RATE}, "clip_range kl_coef learning_rate rollouts"),
        (
            {"pipeline": "sft_then_rl"},
            {"sft_learning_rate": RATE, "sft_share": SHARE, "parallel_weight": REAL},
            "parallel_weight",
        ),
        ({"pipeline": "parallel"}, {"sft_learning_rate": RATE, "parallel_weight": REAL}, ""),
        ({"pipeline": "parallel", "parallel_weight": 1.0}, {"sft_learning_rate": RATE}, "sft_learning_rate"),
        ({}, {"pipeline": category("rl", "sft"), "sft_learning_rate": RATE | {"when": {"pipeline": "sft"}}}, ""),
        (
            {},
            {"pipeline": category("rl", "sft"), "sft_learning_rate": RATE | {"when": {"pipeline": "rl"}}},
            "sft_learning_rate",
        ),
        ({"objective": "simpo"}, {"preference_margin": REAL, "hargo_alpha": REAL}, "clip_range hargo_alpha kl_coef"),
        (
            {"objective": "dpo"},
            {"preference_margin": REAL, "preference_beta": ONE_UP},
            "clip_range kl_coef preference_margin",
        ),
        ({}, {"objective": category("grpo", "ppo"), "gae_lambda": REAL}, ""),
        (
            {},
            {"objective": category("grpo", "ppo"), "gae_lambda": REAL | {"when": {"objective": "grpo"}}},
            "gae_lambda",
        ),
    ],
)
def test_knobs_of_other_objectives(algorithm: dict[str, Any], space: dict[str, Any], names: str) -> None:
    assert " ".join(sorted(dead(space, algorithm=algorithm))) == names


def test_an_estimator_of_a_kl_that_is_not_there() -> None:
    space = {"kl_estimator": category("k2", "k3"), "kl_coef": {"type": "categorical", "choices": [0.0, 0.1]}}
    assert dead(space) == {}
    models = [{"name": "s", "path": "builtin:tiny-s"}]
    study = {"models": models, "space": {"kl_estimator": space["kl_estimator"]}, "algorithm": {"kl_coef": 0.0}}
    reason = "with these settings it changes nothing in grpo"
    assert dead_dimensions(Study.model_validate(study)) == {"kl_estimator": reason}


def test_a_condition_that_the_settings_never_meet() -> None:
    space = {
        "clip_range": SPACE["clip_range"] | {"when": {"minibatches": [4, 8]}},
        "kl_coef": SPACE["kl_coef"] | {"when": {"lr_scheduler": "cosine"}},
    }
    found = dead(space, algorithm={"minibatches": 2})
    assert found == {"clip_range": "it is never active, since it needs minibatches 4 or 8"}
    assert dead(space, algorithm={"minibatches": 8}) == {}


def test_each_dead_dimension_is_told_once() -> None:
    space = {"clip_range": {"type": "categorical", "choices": [0.2, 0.2]}}
    assert list(dead(space, algorithm={"minibatches": 1})) == ["clip_range"]
