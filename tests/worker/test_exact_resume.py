"""Attempts as jobs run them: promotion from a checkpoint gives what one long trial gives, bit for bit."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcjf.config import read_study
from hpcjf.core.identity import config_id
from hpcjf.resolve import resolve_study
from hpcjf.store.frozen import freeze_study
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult, AttemptSpec
from hpcjf.store.registry import Registry
from hpcjf.store.traces import TRACE_COLUMNS, read_trace
from hpcjf.types import Cause, Purpose

CONFIG = {"learning_rate": 1e-3, "lr_scheduler": "cosine", "rollouts": 4}
CLOCKS = {"seq", "time", "cpu_seconds", "crc"}


def make_run(file: Path, root: Path) -> RunLayout:
    layout = RunLayout(root)
    layout.create()
    freeze_study(layout, resolve_study(*_read(file)))
    return layout


def _read(file: Path) -> tuple[object, Path, object]:
    study, lines = read_study(file)
    return study, file, lines


def attempt(layout: RunLayout, trial: int, steps: int) -> AttemptResult:
    paths = layout.attempt(trial, 1)
    paths.create()
    AttemptSpec(
        name=f"t{trial}",
        generation=1,
        trial=trial,
        attempt=1,
        config_id=config_id(CONFIG),
        config=CONFIG,
        model="small",
        steps=steps,
        training_seed=0,
        purpose=Purpose.SEARCH,
    ).write(paths.spec)
    code = "import sys; from hpcjf.worker.entry import run_attempt; run_attempt(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(paths.spec)], check=True, timeout=200, capture_output=True)
    return AttemptResult.read(paths.result)


def weights(layout: RunLayout, step: int) -> dict[str, str]:
    checkpoint = Registry(layout.registry).entry(config_id(CONFIG), "small", 0).newest()
    assert checkpoint is not None
    assert checkpoint.step == step
    files = [path for path in checkpoint.path.rglob("*.safetensors")]
    assert files
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_promoted_trial_equals_one_that_was_never_interrupted(
    write_study: Callable[..., Path], models: Path, tmp_path: Path, adapter: str
) -> None:
    """K2, K5: 0→20 and 0→10→20 give equal weights, metrics and score."""
    file = write_study(
        models=[{"name": "small", "path": str(models / "small"), "adapter": {"type": adapter}}],
        budget={"min": 10, "max": 20, "eta": 2},
        checkpoints={"save_every": 10},
    )
    whole, parts = (make_run(file, tmp_path / name) for name in ("whole", "parts"))
    once = attempt(whole, 0, 20)
    first, second = attempt(parts, 0, 10), attempt(parts, 1, 20)
    assert (first.cause, first.step, first.start_step) == (Cause.COMPLETED, 10, 0)
    assert (second.cause, second.step, second.start_step) == (Cause.COMPLETED, 20, 10)
    assert second.score == once.score
    assert weights(parts, 20) == weights(whole, 20)
    long = read_trace(whole.attempt(0, 1).trace)
    short = np.concatenate([read_trace(parts.attempt(trial, 1).trace) for trial in (0, 1)])
    for column in TRACE_COLUMNS:
        name = column if isinstance(column, str) else column.name
        if name not in CLOCKS:
            np.testing.assert_array_equal(long[name], short[name], err_msg=name)


def test_an_attempt_that_is_done_already_only_reports(write_study: Callable[..., Path], tmp_path: Path) -> None:
    """A job that died between its last checkpoint and its result loses nothing but a start-up."""
    layout = make_run(write_study(budget={"min": 2, "max": 4, "eta": 2}), tmp_path / "run")
    before = attempt(layout, 0, 4)
    again = attempt(layout, 1, 4)
    assert (again.cause, again.step, again.start_step) == (Cause.COMPLETED, 4, 4)
    assert again.score == before.score
