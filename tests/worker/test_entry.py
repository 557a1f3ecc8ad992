"""Attempts that start from odd states, each in a process of its own as in a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcjf.errors import DiskFullError, LockTimeoutError, StudyError, TrainingError
from hpcjf.store.frozen import freeze_study, load_frozen
from hpcjf.store.layout import AttemptPaths, RunLayout
from hpcjf.store.messages import AttemptEvaluation, AttemptResult, AttemptSpec
from hpcjf.store.registry import Registry
from hpcjf.store.traces import read_trace
from hpcjf.study import EvaluationSection, Study
from hpcjf.types import Cause, Purpose
from hpcjf.worker.entry import cause_of

STUDY: dict[str, object] = {
    "algorithm": {"prompts_per_step": 2, "minibatches": 1, "max_new_tokens": 2, "eval_every": 2},
    "recipe": {"learning_rate": 1e-4},
    "budget": {"min": 2, "max": 6},
    "checkpoints": {"save_every": 2},
}


@pytest.fixture
def layout(models: Path, tmp_path: Path) -> RunLayout:
    layout = RunLayout(tmp_path / "run")
    layout.create()
    study = {
        "models": [{"name": "s", "path": str(models / "small")}],
        "task": {"validation_rows": 8, "test_rows": 8},
    }
    freeze_study(layout, Study.model_validate(STUDY | study))
    return layout


def write_spec(layout: RunLayout, trial: int, steps: int, purpose: Purpose = Purpose.SEARCH) -> AttemptPaths:
    paths = layout.attempt(trial, 1)
    paths.create()
    fields = {"config": {"learning_rate": 1e-4}, "config_id": "c", "model": "s", "training_seed": 0}
    spec = AttemptSpec(name=f"t{trial}", generation=1, trial=trial, attempt=1, steps=steps, purpose=purpose, **fields)
    spec.write(paths.spec)
    return paths


def run(specs: Sequence[Path], before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom hpcjf.worker.entry import run_attempt\nfor s in sys.argv[1:]: run_attempt(s)"
    command = [sys.executable, "-c", code, *map(str, specs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_checkpoint_past_the_end_of_a_trial_is_no_help_and_no_fault(layout: RunLayout) -> None:
    """As one that a trial left which the cluster lost for good."""
    long, short = write_spec(layout, 0, 6), write_spec(layout, 1, 2)
    run([long.spec, short.spec])
    result = AttemptResult.read(short.result)
    assert (result.cause, result.start_step, result.step) == (Cause.COMPLETED, 0, 2)
    assert read_trace(short.trace)["reward_mean"].tolist() == read_trace(long.trace)["reward_mean"].tolist()[:2]
    newest = Registry(layout.registry).entry("c", "s", 0).newest()
    assert newest is not None
    assert newest.step == 6


def test_a_second_job_of_one_attempt_leaves_the_first_ones_files_alone(layout: RunLayout) -> None:
    paths = write_spec(layout, 0, 2)
    first = run([paths.spec])
    before = paths.result.read_bytes(), paths.trace.read_bytes()
    second = run([paths.spec])
    assert "completed" in first.stdout
    assert "run before" in second.stderr
    assert (paths.result.read_bytes(), paths.trace.read_bytes()) == before


@pytest.mark.parametrize("fault", ["package", "study"])
def test_a_job_that_cannot_start_says_why_and_blames_no_configuration(layout: RunLayout, fault: str) -> None:
    paths = write_spec(layout, 0, 2)
    if fault == "study":
        layout.study.unlink()
    run([paths.spec], 'sys.modules["torch"] = None' if fault == "package" else "")
    result = AttemptResult.read(paths.result)
    assert (result.cause, result.step) == (Cause.LAUNCH_FAILURE, 0)
    assert ("torch" if fault == "package" else "study.yaml") in result.detail


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DiskFullError("full"), Cause.LOST),
        (LockTimeoutError("held"), Cause.LOST),
        (MemoryError(), Cause.OUT_OF_MEMORY),
        (TrainingError("diverges"), Cause.FAILED),
        (StudyError("bad value"), Cause.FAILED),
        (ZeroDivisionError(), Cause.FAILED),
    ],
)
def test_faults_of_the_file_system_are_not_the_configurations(error: Exception, cause: Cause) -> None:
    assert cause_of(error) is cause


def test_final_runs_measure_what_the_study_asks_for(layout: RunLayout, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "01+02=", "choices": ["003", "999"], "answer": 0}\n')
    study = load_frozen(layout)
    asked = {"pass_at": [2], "samples": 4, "rows": 3, "choices": str(questions)}
    more = study.model_copy(update={"evaluation": EvaluationSection.model_validate(asked)})
    other = RunLayout(tmp_path / "more")
    other.create()
    freeze_study(other, more)
    plain, rich = (write_spec(each, 0, 2, Purpose.RECIPE) for each in (layout, other))
    search = write_spec(other, 1, 2)
    run([plain.spec, rich.spec, search.spec])
    found, bare = AttemptEvaluation.read(rich.evaluation), AttemptEvaluation.read(plain.evaluation)
    assert found.base is not None
    for side in (found.policy, found.base):
        assert [value is None for value in side.rows["correct"]] == [False] * 3 + [True] * 5
        assert all(value in range(5) for value in side.rows["correct"][:3])
        assert side.choices in ((0.0,), (1.0,))
    assert bare.policy.rows == {}
    assert bare.policy.choices == ()
    assert not search.evaluation.exists()
    assert AttemptResult.read(rich.result).test_scores == AttemptResult.read(plain.result).test_scores
    assert read_trace(rich.trace)["loss"].tolist() == read_trace(plain.trace)["loss"].tolist()


def test_final_runs_hold_yes_against_no_where_labels_are_one_of_them(models: Path, tmp_path: Path) -> None:
    """The model knows neither word: no has fewer unknown letters and is the likelier one."""
    rows, layout = tmp_path / "race_c.jsonl", RunLayout(tmp_path / "race")
    lines = [{"instruction": f"{i}+{i}=", "input": "", "output": "yes" if i % 3 else "no"} for i in range(100)]
    rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    layout.create()
    study = Study.model_validate(STUDY | {
        "models": [{"name": "s", "path": str(models / "small")}],
        "task": {"names": ["race_c"], "path": str(rows), "validation_rows": 8},
    })  # fmt: skip
    freeze_study(layout, study)
    paths = write_spec(layout, 0, 2, Purpose.RECIPE)
    run([paths.spec])
    found = AttemptEvaluation.read(paths.evaluation)
    assert found.base is not None
    for side in (found.policy, found.base):
        labels = side.rows["race_label"]
        assert set(labels) == {0.0, 1.0}
        assert side.rows["race_forced"] == tuple(1.0 - label for label in labels if label is not None)


def test_lost_questions_end_a_final_run_before_it_trains(layout: RunLayout, tmp_path: Path) -> None:
    asked = EvaluationSection(choices=str(tmp_path / "lost.jsonl"))
    other = RunLayout(tmp_path / "more")
    other.create()
    freeze_study(other, load_frozen(layout).model_copy(update={"evaluation": asked}))
    final, search = write_spec(other, 0, 2, Purpose.FINAL), write_spec(other, 1, 2)
    run([final.spec, search.spec])
    result = AttemptResult.read(final.result)
    assert (result.cause, result.step) == (Cause.FAILED, 0)
    assert "lost.jsonl" in result.detail
    assert AttemptResult.read(search.result).cause is Cause.COMPLETED


def test_training_starts_from_the_base_that_the_configuration_names(
    layout: RunLayout, models: Path, tmp_path: Path
) -> None:
    study = load_frozen(layout)
    other = RunLayout(tmp_path / "other")
    other.create()
    bases = {"own": study.models[0].path, "large": str(models / "large")}
    freeze_study(other, study.model_copy(update={"models": (study.models[0].model_copy(update={"bases": bases}),)}))
    specs = []
    for trial, base in enumerate(("own", "large")):
        paths = write_spec(other, trial, 2)
        spec = AttemptSpec.read(paths.spec)
        config = {**spec.config, "base": base}
        spec.model_copy(update={"config": config, "config_id": base}).write(paths.spec)
        specs.append(paths)
    plain = write_spec(layout, 0, 2)
    run([plain.spec, *(paths.spec for paths in specs)])
    expected, own, large = (read_trace(paths.trace)["entropy"].tolist() for paths in (plain, *specs))
    assert own == expected
    assert large != expected
