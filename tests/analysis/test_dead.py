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
