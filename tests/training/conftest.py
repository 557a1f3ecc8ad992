"""A random Llama of 20,000 parameters, and a trainer on it, so that each test takes a second or less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcjf.study import AlgorithmSection, ModelSection
from hpcjf.tasks import render
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.base import Row
from hpcjf.training.policy import Policy, load_policy
from hpcjf.training.tiny import Shape, untrained
from hpcjf.training.trainer import Trainer

SHAPE = Shape(0, 32, 2, 64, 0.0)


def share_of_ones(rows: Sequence[Row], responses: Sequence[str]) -> list[float]:
    """A dense reward that a random model earns in part: the share of the first four characters that is a 1."""
    return [response[:4].count("1") / 4 for response in responses]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "random"
    model, tokenizer = untrained(SHAPE, seed=3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def section(adapter: str = "none", **options: Any) -> ModelSection:
    return ModelSection.model_validate({"name": "random", "path": ".", "adapter": {"type": adapter}} | options)


@pytest.fixture
def policy(model_folder: Path) -> Policy:
    return load_policy(section(), model_folder)


@pytest.fixture
def make_trainer(model_folder: Path) -> Callable[..., Trainer]:
    def make(
        adapter: str = "none",
        *,
        rows: int = 10,
        score: Callable[..., Any] = share_of_ones,
        seed: int = 0,
        horizon: int = 20,
        path: Path = model_folder,
        **settings: Any,
    ) -> Trainer:
        defaults = {"prompts_per_step": 4, "rollouts": 4, "minibatches": 2, "max_new_tokens": 5, "learning_rate": 1e-3}
        algorithm = AlgorithmSection.model_validate(defaults | {"kl_coef": 0.05} | settings)
        return Trainer(section(adapter), path, algorithm, split_rows()[0][:rows], score, horizon, seed, render)

    return make
