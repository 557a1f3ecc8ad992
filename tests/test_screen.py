"""What people see of a study: the overview, plain lines, the words for a trial's state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from hpcjf.core.lifecycle import Attempt, StudyState, replay
from hpcjf.screen import PlainLines, Sight, changes, head, overview, phrase, short
from hpcjf.study import SEARCHABLE, Study

Event = dict[str, Any]
CONFIG = {"rollouts": 5, "learning_rate": 1e-4}
STUDY = Study.model_validate({"models": [{"name": "s", "path": "x"}], "search": {"max_trials": 4}})


def trial(number: int, time: float = 1, purpose: str = "search", **more: Any) -> Event:
    event = {"kind": "trial", "time": time, "number": number, "config_id": "c0ffee", "config": CONFIG, "model": "s"}
    return event | {"steps": 20, "training_seed": 0, "purpose": purpose, "why": {"reason": "space-filling"}} | more


def attempt(number: int, time: float = 1, count: int = 1) -> Event:
    return {"kind": "attempt", "time": time, "trial": number, "attempt": count, "name": f"job-{number}-{count}"}


def submitted(number: int, time: float = 1) -> Event:
    return {"kind": "submitted", "time": time, "trial": number, "attempt": 1, "job_id": "77"}


def started(number: int, time: float = 1) -> Event:
    return {"kind": "started", "time": time, "trial": number, "attempt": 1}


def stopping(number: int, time: float = 1) -> Event:
    why = {"cause": "stopped_kl", "why": "KL 3.1 above 2"}
    return {"kind": "stopping", "time": time, "trial": number, "attempt": 1} | why


def ended(number: int, time: float = 1, cause: str = "completed", **more: Any) -> Event:
    event = {"kind": "ended", "time": time, "trial": number, "attempt": 1, "cause": cause, "step": 20, "start_step": 0}
    return event | {"score": 0.25, "seconds": 9.0, "startup_seconds": 1.0, "detail": "", "retry": False} | more


def phase(name: str, reason: str, time: float = 1) -> Event:
    return {"kind": "phase", "time": time, "phase": name, "reason": reason}


def unseen(_: Attempt) -> Sight | None:
    return None


def text(shown: RenderableType, width: int = 160) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(shown)
    assert isinstance(console.file, StringIO)
    return re.sub(r" +\n", "\n", console.file.getvalue())


def test_a_configuration_is_one_line_in_canonical_order() -> None:
    config = {"rollouts": 5, "kl_coef": 0.00123, "learning_rate": 1e-4, "lr_scheduler": "cosine"}
    assert short(config) == "lr=0.0001 sched=cosine kl=0.0012 G=5"
    assert short({}) == ""
    assert len({word.split("=")[0] for word in short(dict.fromkeys(SEARCHABLE, 1.0)).split()}) == len(SEARCHABLE)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "waiting"),
        ([attempt(0)], "submitting"),
        ([attempt(0), submitted(0)], "queued"),
        ([attempt(0), submitted(0), started(0)], "running"),
        ([attempt(0), submitted(0), started(0), stopping(0)], "stopping (stopped_kl)"),
        ([attempt(0), ended(0)], "completed"),
        ([attempt(0), ended(0, cause="stopped_kl")], "stopped_kl"),
        ([attempt(0), ended(0, cause="timed_out", retry=True)], "to be resumed after timed_out"),
        ([attempt(0), ended(0, cause="timed_out", retry=True), attempt(0, count=2)], "submitting"),
    ],
)
def test_the_state_of_a_trial_in_words(events: list[Event], words: str) -> None:
    assert phrase(replay([trial(0), *events]).trials[0]) == words


class TestHead:
    def test_before_the_first_trial(self) -> None:
        assert text(head(STUDY, StudyState())).startswith("study · search · 0/4 search trials ended")

    def test_progress_and_incumbent(self) -> None:
        best = {"kind": "incumbent", "time": 2, "config_id": "c0ffee", "config": CONFIG, "score": 0.25}
        state = replay([trial(0), attempt(0), ended(0), trial(1), best])
        first, second = text(head(STUDY, state)).splitlines()
        assert first.startswith("study · search · 1/4 search trials ended")
        assert second == "best so far: lr=0.0001 G=5 (last score 0.250)"

    def test_a_study_without_a_limit_on_trials(self) -> None:
        study = STUDY.model_copy(update={"search": STUDY.search.model_copy(update={"max_trials": None})})
        assert "· 0 search trials ended" in text(head(study, StudyState()))
        assert "· 1 search trials ended" in text(head(study, replay([trial(0), attempt(0), ended(0)])))

    def test_final_runs_and_the_reason_of_a_stop(self) -> None:
        finals = [trial(1, purpose="final"), trial(2, purpose="recipe"), attempt(2), ended(2)]
        state = replay([trial(0), attempt(0), ended(0), *finals, phase("stopped", "hpcjf stop")])
        assert "study · stopped · 1/4 search trials ended · 1/2 final runs ended · hpcjf stop" in text(
            head(STUDY, state)
        )


class TestOverview:
    def test_it_says_how_the_search_is_done(self) -> None:
        shown = text(overview(STUDY, StudyState(), unseen)).splitlines()
        assert shown[1] == "jfhpo search (joint acquisition)"

    def test_a_live_trial_shows_its_trace(self) -> None:
        state = replay([trial(0), attempt(0), submitted(0), started(0)])
        row = text(overview(STUDY, state, lambda _: (7, 0.5, 0.0123, 0.125))).splitlines()[3]
        assert row.split() == [
            "0",
            "s",
            "7/20",
            *row.split()[3:4],
            "0.125",
            "0.500",
            "0.0123",
            "running",
            "lr=0.0001",
            "G=5",
        ]

    def test_an_ended_trial_shows_where_it_ended(self) -> None:
        state = replay([trial(0), attempt(0), ended(0, cause="stopped_kl", step=12, score=None)])
        shown = text(overview(STUDY, state, unseen)).splitlines()[3]
        assert "12/20" in shown
        assert "stopped_kl" in shown
        assert "0.250" not in shown

    def test_a_trial_that_has_not_begun(self) -> None:
        assert "0/20" in text(overview(STUDY, replay([trial(0)]), unseen))

    def test_only_the_newest_trials_and_every_live_one(self) -> None:
        events: list[Event] = []
        for number in range(30):
            events += [trial(number), attempt(number), *([ended(number)] if number != 3 else [])]
        shown = text(overview(STUDY, replay(events), unseen, rows=5))
        assert "(the newest 5 of 30 trials, and all live ones)" in shown
        numbers = [line.split()[0] for line in shown.splitlines()[4:] if "/20" in line]
        assert numbers == ["3", "25", "26", "27", "28", "29"]

    def test_the_newest_notes_are_shown_as_they_are(self) -> None:
        notes = [{"kind": "note", "time": t, "text": f"[bold]{t}[/bold] said"} for t in range(5)]
        shown = text(overview(STUDY, replay(notes), unseen)).splitlines()
        assert shown[-3:] == ["! [bold]2[/bold] said", "! [bold]3[/bold] said", "! [bold]4[/bold] said"]

    def test_on_a_narrow_terminal_only_the_configuration_gives_way(self) -> None:
        config = dict(CONFIG, clip_range=0.2, grad_clip=1.0, kl_coef=0.001, lr_scheduler="constant")
        events = [trial(0, config=config), attempt(0), submitted(0), started(0)]
        shown = text(overview(STUDY, replay(events), lambda _: (7, 0.125, 0.5, 0.25)), width=80).splitlines()
        for word in ("trial", "model", "steps", "score", "reward", "KL", "state", "7/20", "0.250", "0.125", "running"):
            assert any(word in line for line in shown), word
        assert sum("7/20" in line for line in shown) == 1
        assert any(line.rstrip().endswith("…") for line in shown)

    def test_a_final_run_is_named_so(self) -> None:
        assert "0 recipe" in text(overview(STUDY, replay([trial(0, purpose="recipe")]), unseen))


def told(events: Iterable[Event]) -> list[str]:
    """The changes without the time of day, which depends on where one is."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in changes(replay(events))]


def test_changes_are_told_in_order_of_time() -> None:
    events = [
        trial(0, 1.0),
        attempt(0, 1.5),
        submitted(0, 2.0),
        started(0, 3.0),
        trial(1, 2.5),
        stopping(0, 4.0),
        ended(0, 5.0, cause="stopped_kl", step=12, start_step=10, detail="saved"),
        {"kind": "note", "time": 4.5, "text": "scheduler silent"},
        {"kind": "incumbent", "time": 6.0, "config_id": "c0ffee", "config": CONFIG, "score": None},
    ]
    assert told(events) == [
        "trial 0 (search, s, 20 steps): lr=0.0001 G=5 [space-filling]",
        "trial 0: job 77 submitted as job-0-1",
        "trial 1 (search, s, 20 steps): lr=0.0001 G=5 [space-filling]",
        "trial 0: stopped_kl: KL 3.1 above 2",
        "! scheduler silent",
        "trial 0: stopped_kl at step 12 (resumed at 10), score 0.250: saved",
        "best so far: lr=0.0001 G=5",
    ]


def test_plain_lines_tell_each_change_once() -> None:
    out = StringIO()
    lines = PlainLines(Console(file=out, width=40))
    events = [trial(0, 1.0), attempt(0, 1.5)]
    lines.show(replay(events))
    lines.show(replay(events))
    lines.show(replay([*events, submitted(0, 2.0)]))
    told_lines = out.getvalue().splitlines()
    assert len(told_lines) == 2, "a change was told twice, or a line was wrapped"
    assert told_lines[0].endswith("[space-filling]")
    assert told_lines[1].endswith("trial 0: job 77 submitted as job-0-1")


def test_plain_lines_tell_a_change_that_is_older_than_one_already_told() -> None:
    """The next controller may run on a host whose clock is behind."""
    out = StringIO()
    lines = PlainLines(Console(file=out, width=200))
    events = [trial(0, 1.0), attempt(0, 1.5), {"kind": "note", "time": 9.0, "text": "late"}]
    lines.show(replay(events))
    lines.show(replay([*events, submitted(0, 2.0)]))
    shown = out.getvalue()
    assert shown.count("late") == 1
    assert shown.count("job 77 submitted") == 1
