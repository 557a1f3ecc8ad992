from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcjf.errors import TrainingError
from hpcjf.training.tiny import Shape, untrained
from hpcjf.training.trainer import Trainer

Make = Callable[..., Trainer]


def test_the_streams_of_python_and_torch_are_restored(make_trainer: Make, tmp_path: Path) -> None:
    trainer = make_trainer()
    random.seed(5)
    torch.manual_seed(5)
    trainer.save(tmp_path)
    expected = random.random(), float(torch.rand(()))
    trainer.load(tmp_path)
    assert (random.random(), float(torch.rand(()))) == expected


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"horizon": 30}, {"learning_rate": 2e-3}, {"rollouts": 8}, {"kl_coef": 0.0}]
)
def test_a_checkpoint_of_another_run_is_refused(make_trainer: Make, tmp_path: Path, change: dict[str, Any]) -> None:
    make_trainer().save(tmp_path)
    with pytest.raises(TrainingError, match=f"{next(iter(change))} was"):
        make_trainer(**change).load(tmp_path)


def test_a_checkpoint_may_be_resumed_with_smaller_batches(make_trainer: Make, tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.train_step()
    trainer.save(tmp_path)
    other = make_trainer(micro_batch=2, eval_batch=1)
    other.load(tmp_path)
    assert other.step == 1


def test_a_checkpoint_on_another_base_is_refused(make_trainer: Make, tmp_path: Path) -> None:
    model, tokenizer = untrained(Shape(0, 32, 2, 64, 0.0), seed=8)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    make_trainer("lora", path=tmp_path / "base").save(tmp_path / "saved")
    with pytest.raises(TrainingError, match="reference was"):
        make_trainer("lora").load(tmp_path / "saved")


def test_damaged_state_is_refused(make_trainer: Make, tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.save(tmp_path)
    path = tmp_path / "state.pt"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TrainingError, match="cannot be read"):
        trainer.load(tmp_path)
    path.unlink()
    with pytest.raises(TrainingError, match="cannot be read"):
        trainer.load(tmp_path)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("trapped"),))


def test_state_that_holds_code_is_not_run(make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer()
    trainer.save(tmp_path)
    torch.save({"identity": Trap()}, tmp_path / "state.pt")
    with pytest.raises(TrainingError, match="cannot be read"):
        trainer.load(tmp_path)
    (tmp_path / "state.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(TrainingError, match="cannot be read"):
        trainer.load(tmp_path)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("damage", [{"torch": torch.zeros(3, dtype=torch.uint8)}, {"python": (3, (1, 2), None)}, None])
def test_streams_that_cannot_be_restored_are_an_error(
    make_trainer: Make, tmp_path: Path, damage: dict[str, Any] | None
) -> None:
    trainer = make_trainer()
    trainer.save(tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    if damage is None:
        del state["rng"]
    else:
        state["rng"] |= damage
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(TrainingError, match="random streams cannot be restored"):
        trainer.load(tmp_path)
