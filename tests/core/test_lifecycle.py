"""The journal's events, replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjf.core.lifecycle import Phase, StudyState, replay
from hpcjf.types import Cause, Fidelity, Purpose


def steps(start: int, reached: int) -> dict[str, int]:
    return {"start_step": start, "step": reached}


def story() -> list[dict[str, Any]]:
    """Trial 0 is preempted and resumed; trial 1 runs; a second controller generation takes over in between."""
    trial = {"kind": "trial", "config_id": "c", "config": {"lr": 1.0}, "model": "s", "steps": 20, "training_seed": 0}
    end = {"kind": "ended", "trial": 0, "score": 0.5, "detail": "", "startup_seconds": 2.0}
    return [
        {"kind": "study", "time": 0.0, "run_id": "r", "name": "n"},
        {"kind": "controller", "time": 0.0, "generation": 1, "host": "h", "pid": 1, "job_id": ""},
        {**trial, "time": 1.0, "number": 0, "purpose": "search", "why": {"reason": "recipe"}},
        {"kind": "attempt", "time": 1.0, "trial": 0, "attempt": 1, "name": "r-t0-a1"},
        {"kind": "submitted", "time": 2.0, "trial": 0, "attempt": 1, "job_id": "7"},
        {"kind": "started", "time": 3.0, "trial": 0, "attempt": 1},
        {"kind": "controller", "time": 100.0, "generation": 2, "host": "h", "pid": 2, "job_id": ""},
        {
            **end,
            "time": 110.0,
            "attempt": 1,
            "cause": "preempted",
            "step": 10,
            "start_step": 0,
            "seconds": 7.0,
            "retry": True,
        },
        {"kind": "attempt", "time": 110.0, "trial": 0, "attempt": 2, "name": "r-t0-a2"},
        {
            **end,
            "time": 120.0,
            "attempt": 2,
            "cause": "completed",
            "step": 20,
            "start_step": 10,
            "seconds": 8.0,
            "retry": False,
        },
        {**trial, "time": 121.0, "number": 1, "purpose": "final", "why": {}},
        {"kind": "phase", "time": 122.0, "phase": "final", "reason": "1 trials"},
    ]


def test_attempts_of_a_trial_make_one_observation() -> None:
    seen = replay(story()).trials[0].observation()
    assert seen is not None
    assert (seen.cause, seen.score, seen.fidelity) == (Cause.COMPLETED, 0.5, Fidelity("s", 20))
    assert (seen.start_step, seen.seconds, seen.startup_seconds) == (0, 15.0, 4.0)
    assert seen.why == {"reason": "recipe"}


def test_a_journal_from_before_kl_and_tokens_still_replays() -> None:
    seen = replay(story()).trials[0].observation()
    assert seen is not None
    assert seen.kl is None
    events = story()
    events[9] |= {"kl": 0.25, "tokens": 30.0}
    seen = replay(events).trials[0].observation()
    assert seen is not None
    assert seen.kl == 0.25


def test_work_is_steps_times_tokens_times_size_and_knows_no_clock() -> None:
    events = story()
    events[9] |= {"tokens": 30.0}
    trial = replay(events).trials[0]
    seen, work = trial.observation(), trial.in_work(0.5)
    assert seen is not None
    assert work == replace(seen, seconds=20 * 30.0 * 0.5, startup_seconds=0.0)
    assert replay(events[:8]).trials[0].in_work(1.0) is None
    without_trace = replay(story()).trials[0].in_work(1.0)
    assert without_trace is not None
    assert without_trace.seconds == 0.0


def test_the_order_in_which_trials_end_is_kept() -> None:
    events = story()
    events[9] = {**events[9], "time": 130.0}
    other = {"trial": 1, "attempt": 1}
    end = {**events[9], **other, "time": 125.0}
    attempt = {"kind": "attempt", "time": 123.0, "name": "r-t1-a1", **other}
    state = replay([*events[:9], *events[10:], attempt, end, events[9]])
    assert state.over == [1, 0]
    assert replay(story()[:8]).over == [], "a trial that is tried again is not over"


def test_retried_attempt_leaves_the_trial_open() -> None:
    state = replay(story()[:8])
    assert state.trials[0].cause is None
    assert state.trials[0].observation() is None
    assert state.trials[0].live is None
    assert state.open_trials() == [state.trials[0]]


def test_time_without_a_controller_is_not_counted() -> None:
    assert replay(story()).active_seconds == pytest.approx(3.0 + 22.0)


def test_live_attempt_is_the_one_without_an_ending() -> None:
    assert [attempt.name for _, attempt in replay(story()[:6]).live()] == ["r-t0-a1"]
    assert list(replay(story()).live()) == []


def test_purposes_are_told_apart() -> None:
    state = replay(story())
    assert [t.trial.number for t in state.of(Purpose.SEARCH)] == [0]
    assert [t.trial.number for t in state.of(Purpose.FINAL, Purpose.RECIPE)] == [1]
    assert state.phase is Phase.FINAL
    assert state.job_seconds() == 19.0


def test_unknown_kinds_are_left_alone() -> None:
    events = story()
    assert replay([*events, {"kind": "from_the_future", "time": 123.0}]).trials == replay(events).trials


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 12))
def test_replay_of_any_prefix_goes_on_to_the_same_state(cut: int) -> None:
    """P31: a restart at any event changes nothing."""
    events = story()
    state = replay(events[:cut])
    for event in events[cut:]:
        state.apply(event)
    assert state == replay(events)
    assert isinstance(state, StudyState)


def test_an_attempt_that_died_before_its_first_step_does_not_move_the_start() -> None:
    events = story()
    events[7] |= {"step": 0, "start_step": 0, "seconds": 0.0}
    seen = replay(events).trials[0].observation()
    assert seen is not None
    assert seen.start_step == 10


@pytest.mark.parametrize("lost", range(len(story())))
def test_a_record_that_was_lost_takes_no_other_trial_with_it(lost: int) -> None:
    events = story()
    del events[lost]
    state = replay(events)
    assert state.next_number == 2 - (lost == 10)
    assert set(state.trials) == {0, 1} - ({0} if lost == 2 else {1} if lost == 10 else set())
    if lost == 3:
        assert [attempt.number for attempt in state.trials[0].attempts] == [2]
        assert state.trials[0].cause is Cause.COMPLETED
    assert any("no record" in text for _, text in state.notes) == (lost in (2, 3, 8))


def test_a_malformed_event_is_no_lost_record() -> None:
    with pytest.raises(KeyError):
        replay([{"kind": "phase", "time": 0.0}])
