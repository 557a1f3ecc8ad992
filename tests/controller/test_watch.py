"""Traces of live attempts, and the stopping rule over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjf.controller.watch import TraceWatch
from hpcjf.core.lifecycle import Attempt
from hpcjf.store.layout import RunLayout
from hpcjf.store.traces import OBJECTIVE_COLUMNS, TraceWriter
from hpcjf.study import StoppingSection
from hpcjf.types import Cause, Fidelity, Purpose, Trial

TRIAL = Trial(1, "c0ffee", {}, Fidelity("s", 60), 0, Purpose.SEARCH)
RULE = StoppingSection(rule="robust", warmup_steps=10)


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    made = RunLayout(tmp_path / "run")
    made.create()
    return made


def attempt(layout: RunLayout, trial: int, rewards: dict[int, float]) -> Attempt:
    """An attempt whose trace has these rewards by step, with a harmless KL."""
    paths = layout.attempt(trial, 1)
    paths.create()
    with TraceWriter(paths.trace) as trace:
        for step, reward in rewards.items():
            trace.append(step=step, reward_mean=reward, kl=0.001, time=float(step))
    return Attempt(trial=trial, number=1, name=f"t{trial}", intended=0.0)


def test_rows_come_piece_by_piece(layout: RunLayout) -> None:
    watch = TraceWatch(layout, RULE)
    live = attempt(layout, 1, {1: 0.5, 2: 0.25})
    rows = watch.read(live)
    assert rows is not None
    assert rows["step"].tolist() == [1, 2]
    progress = watch.progress(live)
    assert progress is not None
    assert (progress.step, progress.reward, progress.score) == (2, 0.25, None)
    watch.forget(live)
    assert watch.progress(live) is None


def test_a_resumed_trial_is_judged_with_what_came_before_its_checkpoint(layout: RunLayout) -> None:
    """A promoted trial starts from a raised level: falling back to where training began is no news to its own rows."""
    noise = [0.02, -0.02]
    first = attempt(layout, 0, {step: 0.5 + noise[step % 2] for step in range(1, 31)})
    second = attempt(layout, 1, {step: 0.02 for step in range(31, 51)})
    watch = TraceWatch(layout, RULE)
    watch.read(second)
    assert watch.verdict(TRIAL, second) is None
    watch.forget(second)
    watch.read(second)
    decision = watch.verdict(TRIAL, second, [first])
    assert decision is not None
    assert decision.cause is Cause.STOPPED_REWARD
    assert decision.step > 30


def test_rows_beyond_the_checkpoint_are_not_counted_twice(layout: RunLayout) -> None:
    """The lower attempt died at step 10 and was resumed from step 7: three zero rewards, not six, are no five."""
    ran = {step: 0.5 for step in range(1, 8)} | {8: 0.0, 9: 0.0, 10: 0.0}
    again = {8: 0.0, 9: 0.0, 10: 0.0} | {step: 0.5 for step in range(11, 20)}
    first, second = attempt(layout, 0, ran), attempt(layout, 1, again)
    watch = TraceWatch(layout, StoppingSection(rule="paper"))
    watch.read(second)
    assert watch.verdict(TRIAL, second, [first]) is None


def test_attempts_of_a_version_without_the_objectives_columns_are_joined(layout: RunLayout) -> None:
    before, after = attempt(layout, 0, {1: 0.5, 2: 0.6}), attempt(layout, 1, {})
    layout.attempt(1, 1).trace.unlink()
    with TraceWriter(layout.attempt(1, 1).trace, OBJECTIVE_COLUMNS) as trace:
        trace.append(step=2, reward_mean=0.7, hargo_level=-1.0)
        trace.append(step=3, reward_mean=0.8)
    watch = TraceWatch(layout, StoppingSection())
    watch.read(after)
    whole = watch.whole(after, [before])
    assert whole is not None
    assert whole["reward_mean"].tolist() == [0.5, 0.7, 0.8]


def test_final_runs_and_stopping_ones_are_left_alone(layout: RunLayout) -> None:
    live = attempt(layout, 1, {step: 0.0 for step in range(1, 20)})
    watch = TraceWatch(layout, StoppingSection(rule="paper"))
    watch.read(live)
    assert watch.verdict(TRIAL, live) is not None
    final = Trial(1, "c0ffee", {}, Fidelity("s", 60), 0, Purpose.FINAL)
    assert watch.verdict(final, live) is None
    live.stop = Cause.CANCELLED
    assert watch.verdict(TRIAL, live) is None
