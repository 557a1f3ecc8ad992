"""From a study's settings to an objective."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, get_args

import pytest

from hpcjf.study import AlgorithmSection, ObjectiveName
from hpcjf.training.objectives.chosen import default_settings, sampled_objective
from hpcjf.training.objectives.table import HARGO_ABLATIONS, OBJECTIVES, Kl

NAMES = get_args(ObjectiveName)


def chosen(**settings: Any) -> Any:
    return sampled_objective(AlgorithmSection.model_validate(settings))


@pytest.mark.parametrize("name", NAMES)
def test_without_settings_it_is_the_table_s(name: str) -> None:
    assert chosen(objective=name) == OBJECTIVES[name]
    assert chosen(objective=name, **default_settings(name)) == OBJECTIVES[name]


def test_every_setting_that_may_be_null_reaches_some_objective() -> None:
    nullable = {name for name, field in AlgorithmSection.model_fields.items() if field.default is None}
    assert nullable == {name for objective in NAMES for name in default_settings(objective)} | {"base", "dual_clip"}
    assert chosen(dual_clip=3.0) == replace(chosen(), dual_clip=3.0)


def test_the_upper_clip_range_follows_the_lower_one_unless_it_is_set() -> None:
    assert (chosen(clip_range=0.1).clip_low, chosen(clip_range=0.1).clip_high) == (0.1, 0.1)
    dapo = chosen(objective="dapo", clip_range=0.1)
    assert (dapo.clip_low, dapo.clip_high) == (0.1, pytest.approx(0.14))
    assert chosen(objective="dapo", clip_range=0.1, clip_range_high=0.3).clip_high == 0.3
    only = chosen(objective="dapo", clip_range_high=0.5)
    assert (only.clip_low, only.clip_high) == (0.2, 0.5)


def test_a_kl_that_is_moved_takes_the_estimator_that_fits() -> None:
    assert chosen(kl_in="reward").kl == Kl("reward", 0.001, "k1")
    assert chosen(objective="rloo", kl_in="loss").kl == Kl("loss", 0.05, "k3")
    assert chosen(kl_estimator="k2", kl_coef=0.0).kl == Kl("loss", 0.0, "k2")


def test_hargo_s_ablations_are_settings() -> None:
    assert chosen(objective="hargo", hargo_alpha=0.0).hargo == HARGO_ABLATIONS["B1"]
    assert chosen(objective="hargo", hargo_weights="confidence").hargo == HARGO_ABLATIONS["B2"]
    assert chosen(objective="hargo").hargo == HARGO_ABLATIONS["B3"]


def test_what_an_objective_has_no_part_for_does_nothing() -> None:
    assert chosen(objective="grpo", hargo_alpha=0.9, value_coef=0.5, gae_lambda=0.1) == OBJECTIVES["grpo"]


def test_it_loads_no_torch() -> None:
    code = "import sys, hpcjf.training.objectives.chosen; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
