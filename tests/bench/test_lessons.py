"""The benchmark of what training learns: its jobs, its memory of them, and its tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcjf.study import AlgorithmSection, Pipeline
from hpcjf.tasks.arithmetic import split_rows
from lessons import hpc, objectives, pipelines, small, tables
from lessons.jobs import Job, Outcome, run_all

TOOL = Path(__file__).parents[2] / "tools/bench/learning"
PARTS = (objectives, hpc, pipelines)


def outcome(name: str, seed: int, **found: list[float] | list[str]) -> Outcome:
    return Outcome(Job("part", name, seed, "start", 1), found)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_jobs_are_told_apart_and_have_legal_settings(part: object) -> None:
    for quick in (False, True):
        jobs = part.jobs(3, quick)  # type: ignore[attr-defined]
        assert len({job.key for job in jobs}) == len(jobs) > 1
        for job in jobs:
            AlgorithmSection.model_validate(job.algorithm)


def test_all_that_the_issue_names_is_run() -> None:
    assert {job.name for job in objectives.jobs(1, False)} >= {"grpo", "ppo", "hargo", objectives.CONTROL}
    assert {"SFT", "GRPO", "Dr. GRPO", "PPO", "HARGO"} <= {job.name for job in hpc.jobs(1, False)}
    assert set(pipelines.PIPELINES) - {"base"} <= set(Pipeline.__args__)
    assert {job.start for job in pipelines.jobs(1, False)} == set(pipelines.STARTS)


def test_finished_runs_are_taken_from_the_file(tmp_path: Path) -> None:
    jobs = objectives.jobs(1, True)
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps({"key": job.key, "found": {"seed": job.seed}}) + "\n" for job in jobs))

    def never(job: Job, models: Path) -> dict[str, float]:
        raise AssertionError("ran again")

    found = run_all(jobs, never, tmp_path, results, 1)
    assert [each.job for each in found] == jobs
    assert all(each.found == {"seed": each.job.seed} for each in found)


def test_shuffled_rewards_are_the_same_ones_elsewhere() -> None:
    rows = list(split_rows()[0][:50])
    responses = [row.references[0] if i % 3 == 0 else "x" for i, row in enumerate(rows)]
    rewards = objectives.Rewards(1)
    plain = rewards(rows, responses)
    rewards.shuffled = True
    mixed = rewards(rows, responses)
    assert plain == [float(i % 3 == 0) for i in range(50)]
    assert sorted(mixed) == sorted(plain)
    assert mixed != plain


def test_questions_have_one_right_answer() -> None:
    for question in pipelines.questions(200):
        assert len(set(question.choices)) == 4
        first, second = question.text.removesuffix("=").split("-")
        assert question.choices[question.answer] == f"{int(first) - int(second):+03d}"
    assert pipelines.questions(20) == pipelines.questions(20)


def test_tables_by_hand() -> None:
    ours = [outcome("a", seed, score=[1.0, 0.0, 1.0, 1.0], tasks=["race_c", "plp", "race_c", "plp"]) for seed in (1, 2)]
    base = [outcome("b", 1, score=[0.0, 0.0, 1.0, 0.5])] * 2
    assert tables.of(ours, "score").mean == 0.75
    assert tables.of(ours, "score", part="race").mean == 1.0
    assert tables.paired(ours, base, "score").mean == pytest.approx(0.375)
    assert tables.win_rate(ours, base, "score").mean == pytest.approx((1 + 0.5 + 0.5 + 1) / 4)
    assert tables.markdown(("x", "y"), [("1", "2")]) == ["| x | y |", "|---|---|", "| 1 | 2 |", ""]


def test_the_small_tokenizer_gives_texts_back() -> None:
    rows = list(split_rows()[0][:200])
    tokenizer = small._tokenizer(rows)
    text = rows[0].prompt + rows[0].references[0] + " ünï {};"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parts", "objectives,nothing"], "--parts: no nothing; known: objectives, hpc, pipelines"),
        (["--seeds", "0"], "--seeds: must be at least 1"),
        (["--json", "/nowhere/x.json"], "/nowhere is no folder"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"tools/bench/learning: {said}\n"
