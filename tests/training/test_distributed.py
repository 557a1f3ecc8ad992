"""Two real processes over gloo against one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcjf.training import distributed

PROGRAM = """
import json, os, sys
from pathlib import Path
import torch
from hpcjf.study import AlgorithmSection, ModelSection
from hpcjf.tasks import render
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.training.trainer import Trainer

if int(os.environ["WORLD_SIZE"]) > 1:
    torch.distributed.init_process_group("gloo")


def score(rows, texts):
    return [None if text[:1] == "7" else text[:4].count("1") / 4 for text in texts]


folder, out, cases = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
rows, test = split_rows()[0][:10], split_rows()[2][:7]
for number, case in enumerate(cases):
    adapter, resume, steps = case.pop("adapter", "none"), case.pop("resume", None), case.pop("steps", 3)
    model = ModelSection.model_validate({"name": "m", "path": ".", "adapter": {"type": adapter}})
    trainer = Trainer(model, folder, AlgorithmSection.model_validate(case), rows, score, 20, 0, render)
    if resume:
        trainer.load(Path(resume))
    found = [[trainer.train_step() for _ in range(steps)], trainer.evaluate(test)]
    found += [trainer.count_right(rows[:3], 4, 1.0), trainer.choose(rows[:5], ("12", "3"))]
    if os.environ["RANK"] == "0":
        own = out / str(number)
        trainer.save(own)
        torch.save([parameter.detach() for parameter in trainer.policy.parameters()], own / "weights.pt")
        (own / "found.json").write_text(json.dumps(found))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""
COMMON = {"prompts_per_step": 5, "rollouts": 4, "minibatches": 2, "max_new_tokens": 5, "learning_rate": 1e-3}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"kl_coef": 0.05, "micro_batch": 4},
    "lora": {"objective": "hargo", "adapter": "lora"},
    "ppo": {"objective": "ppo"},
    "dapo": {"objective": "dapo"},
    "kto": {"objective": "kto", "learning_rate": 1e-4},
    "parallel": {"pipeline": "parallel", "sft_batch": 3},
    "two steps": {"steps": 2},
    "three steps": {},
}


def run(out: Path, size: int, folder: Path, cases: list[dict[str, Any]]) -> None:
    """All of ``cases`` one after the other, each into a folder of its own, by ``size`` processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    asked = json.dumps([COMMON | case for case in cases])
    command = [sys.executable, "-c", PROGRAM, str(folder), str(out), asked]
    processes = [
        subprocess.Popen(command, env=common | {"RANK": str(i)}, stderr=subprocess.PIPE, text=True) for i in range(size)
    ]
    said = [process.communicate(timeout=500)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * size, said


class Runs:
    """The cases by one and by two processes; after them one process goes on from a checkpoint of two."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        two = list(CASES).index("two steps")
        run(folder / "two", 2, model, list(CASES.values()))
        resumed = {"steps": 1, "resume": str(folder / "two" / str(two))}
        run(folder / "one", 1, model, [*CASES.values(), resumed])

    def found(self, side: str, case: str) -> list[Any]:
        found: list[Any] = json.loads((self._place(side, case) / "found.json").read_text())
        return found

    def weights(self, side: str, case: str) -> list[torch.Tensor]:
        found: list[torch.Tensor] = torch.load(self._place(side, case) / "weights.pt", weights_only=True)
        return found

    def _place(self, side: str, case: str) -> Path:
        return self.folder / side / str(len(CASES) if case == "resumed" else list(CASES).index(case))


@pytest.fixture(scope="module")
def runs(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"), model_folder)


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(runs: Runs, case: str) -> None:
    alone, both = runs.found("one", case), runs.found("two", case)
    for left, right in zip(alone[0], both[0], strict=True):
        for name, value in left.items():
            assert right[name] == pytest.approx(value, abs=1e-5, rel=1e-4, nan_ok=True), name
    assert both[1:] == alone[1:]
    assert alike(runs.weights("one", case), runs.weights("two", case))


def test_checkpoints_do_not_depend_on_the_number_of_processes(runs: Runs) -> None:
    [step], whole = runs.found("one", "resumed")[0], runs.found("one", "three steps")[0]
    assert step["loss"] == pytest.approx(whole[2]["loss"], abs=1e-5)
    assert alike(runs.weights("one", "resumed"), runs.weights("one", "three steps"))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_shares_are_neighbours_and_complete(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(distributed, "processes", lambda: 3)
    shares = [list(distributed.share(range(count), member)) for member in range(3)]
    assert [item for part in shares for item in part] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
