from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from builder import RECIPE, RunBuilder

from hpcjf.analysis.load import RunData, load_run
from hpcjf.errors import StoreError
from hpcjf.types import Cause


def loaded(run: RunBuilder) -> RunData:
    return load_run(run.layout.root)


def test_reads_study_state_traces_and_results(run: RunBuilder) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    data = loaded(run)
    assert data.problems == ()
    assert data.study == run.study
    assert data.state.trials[trial].cause is Cause.COMPLETED
    np.testing.assert_array_equal(data.traces[trial, 1]["step"], np.arange(1, 11))
    result = data.last_result(data.state.trials[trial])
    assert result is not None
    assert result.step == 10


def test_a_run_without_trials_is_fine(run: RunBuilder) -> None:
    data = loaded(run)
    assert (dict(data.state.trials), dict(data.traces), data.problems) == ({}, {}, ())


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run directory"):
        load_run(tmp_path)


def test_a_job_that_has_not_begun_is_no_problem(run: RunBuilder) -> None:
    run.submit(run.trial(RECIPE, "small", 10))
    data = loaded(run)
    assert data.problems == ()
    assert data.last_result(data.state.trials[0]) is None


def test_a_trial_without_attempts_has_no_result(run: RunBuilder) -> None:
    run.trial(RECIPE, "small", 10)
    data = loaded(run)
    assert data.last_result(data.state.trials[0]) is None


def test_the_result_of_the_newest_attempt_counts(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial)
    run.result(trial, 4, cause=Cause.PREEMPTED)
    run.end(trial, 5, 4, cause=Cause.PREEMPTED, retry=True)
    run.submit(trial)
    data = loaded(run)
    assert data.results[trial, 1].step == 4
    assert data.last_result(data.state.trials[trial]) is None


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all", b"\x89HDF\r\n\x1a\n" + bytes(500)])
def test_a_damaged_trace_is_named(run: RunBuilder, content: bytes) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    run.layout.attempt(trial, 1).trace.write_bytes(content)
    data = loaded(run)
    assert (trial, 1) not in data.traces
    [problem] = data.problems
    assert problem.startswith("trials/0000/attempt-01/trace.h5: ")


def test_a_missing_trace_of_a_job_that_trained_is_named(run: RunBuilder) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    run.layout.attempt(trial, 1).trace.unlink()
    assert "trace.h5" in loaded(run).problems[0]


def test_a_trace_that_ends_too_early_is_named_and_used(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial)
    run.trace(trial, 0, 6)
    run.end(trial, 100, 10, score=0.5)
    data = loaded(run)
    assert data.traces[trial, 1]["step"][-1] == 6
    assert "up to step 6 only; the attempt reached 10" in data.problems[0]


def test_a_trace_that_is_a_link_is_refused_and_named(run: RunBuilder, tmp_path: Path) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    trace = run.layout.attempt(trial, 1).trace
    other = tmp_path / "elsewhere.h5"
    os.replace(trace, other)
    trace.symlink_to(other)
    data = loaded(run)
    assert (trial, 1) not in data.traces
    assert len(data.problems) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"version": 1, "name": "x"}'])
def test_a_damaged_result_is_named(run: RunBuilder, content: str) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    run.layout.attempt(trial, 1).result.write_text(content)
    data = loaded(run)
    assert not data.results
    [problem] = data.problems
    assert problem.startswith("trials/0000/attempt-01/result.json")


def test_a_result_of_another_attempt_is_not_used(run: RunBuilder) -> None:
    one, two = run.job(RECIPE, "small", 10, 0), run.job(RECIPE, "small", 30, 0)
    os.replace(run.layout.attempt(one, 1).result, run.layout.attempt(two, 1).result)
    data = loaded(run)
    assert not data.results
    assert "belongs to 'run1-0000-01', not to 'run1-0001-01'" in data.problems[0]


def test_a_damaged_journal_record_takes_only_what_builds_on_it(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.job(RECIPE, "small", 30, 200)
    lines = run.layout.journal.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b'"kind":"trial"' in line)
    lines[place] = lines[place].replace(b"small", b"smell")
    run.layout.journal.write_bytes(b"".join(lines))
    data = loaded(run)
    assert list(data.state.trials) == [1]
    assert data.state.trials[1].cause is Cause.COMPLETED
    assert "wrong checksum" in data.problems[0]
    assert any("attempt skipped: no record of trial 0" in text for _, text in data.state.notes)


def test_a_journal_cut_in_the_middle_of_a_record_is_named(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    whole = run.layout.journal.read_bytes()
    run.layout.journal.write_bytes(whole[:-7])
    data = loaded(run)
    assert data.state.trials[0].cause is None
    assert "unfinished last record" in data.problems[0]


def test_an_unreadable_journal_is_a_problem(run: RunBuilder, tmp_path: Path) -> None:
    run.layout.journal.unlink()
    run.layout.journal.symlink_to(tmp_path / "nowhere")
    data = loaded(run)
    assert not data.state.trials
    assert len(data.problems) == 1


def test_problems_do_not_tell_where_the_run_lies(run: RunBuilder) -> None:
    trial = run.job(RECIPE, "small", 10, 0)
    run.layout.attempt(trial, 1).result.write_text("{")
    run.layout.attempt(trial, 1).trace.write_text("{")
    run.layout.journal.write_bytes(run.layout.journal.read_bytes() + b"torn")
    data = loaded(run)
    assert len(data.problems) == 3
    assert not any(str(run.layout.root) in problem for problem in data.problems)
