from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import RECIPE, START, RunBuilder

from hpcjf.analysis.compare import Estimate
from hpcjf.analysis.evaluation import Evaluation, Line, change, evaluate
from hpcjf.analysis.load import load_run
from hpcjf.analysis.report import render
from hpcjf.store.messages import AttemptEvaluation, Columns, Measured
from hpcjf.types import Config

WINNER: Config = RECIPE | {"learning_rate": 1e-5}


def gain(mean: float, half: float = 0.05) -> Estimate:
    return Estimate(mean, mean - half, mean + half, (mean,), 100)


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [(0.2, 0.2, "Expansion"), (0.2, 0.01, "Sharpening"), (0.01, 0.2, "Neither"), (-0.2, -0.2, "Neither")],
)
def test_what_training_did_has_a_name(first: float, last: float, says: str) -> None:
    assert change({1: gain(first), 8: gain(0.3), 32: gain(last)}).startswith(says)
    assert change({1: gain(first)}) == ""


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    return RunBuilder(tmp_path / "run", {"evaluation": {"pass_at": [1, 4], "samples": 4}})


def measured(rows: Columns, choices: tuple[float, ...] = ()) -> Measured:
    return Measured(rows=rows, choices=choices)


def add(run: RunBuilder, trial: int, policy: Measured, base: Measured | None = None) -> None:
    paths = run.layout.attempt(trial, 1)
    AttemptEvaluation(name=run.name(trial, 1), samples=4, policy=policy, base=base).write(paths.evaluation)


def test_figures_by_hand(run: RunBuilder) -> None:
    race = {"race_label": (1.0, 1.0, 0.0, 0.0, None), "race_undecided": (0.0, 0.0, 0.0, 0.0, None)}
    base = measured(race | {"race_guess": (0.0, 0.0, 1.0, 1.0, None), "correct": (0.0, 1.0, 2.0, None, None)}, (1, 0))
    better = measured(race | {"race_guess": (1.0, 1.0, 1.0, 0.0, None), "correct": (4.0, 1.0, 4.0, None, None)}, (1, 1))
    for seed in (1, 2):
        add(run, run.final(RECIPE, "recipe", seed, 0, [0, 0, 1, 1, 0], base=[0, 0, 0, 0, 1] if seed == 1 else None),
            base, base if seed == 1 else None)  # fmt: skip
        add(run, run.final(WINNER, "final", seed, 0, [1, 0, 1, 0, 1]), better)
    found = evaluate(load_run(run.layout.root))
    assert found is not None
    lines = {line.name: line for line in found.lines}
    f1 = lines["data race, F1"]
    assert f1.winner is not None
    assert f1.base is not None
    assert f1.over_base is not None
    assert f1.winner.mean == pytest.approx(2 * 2 / (3 + 2))
    assert f1.base.mean == 0
    assert f1.over_base.mean == pytest.approx(0.8)
    assert f1.over_base.low <= 0.8 <= f1.over_base.high
    first, wide = lines["pass@1"], lines["pass@4"]
    assert first.winner is not None
    assert wide.winner is not None
    assert wide.base is not None
    assert first.winner.mean == pytest.approx((1 + 0.25 + 1) / 3)
    assert wide.winner.mean == 1
    assert wide.base.mean == pytest.approx(2 / 3)
    assert first.winner.rows == 3
    capability = lines["capability, multiple choice"]
    assert capability.over_base is not None
    assert capability.over_base.mean == 0.5
    wins = lines["win rate against the recipe"].winner
    assert wins is not None
    assert wins.mean == pytest.approx((1 + 0.5 + 0.5 + 0 + 1) / 5)
    over_base = lines["win rate against the base"].winner
    assert over_base is not None
    assert over_base.mean == pytest.approx((1 + 0.5 + 1 + 0.5 + 0.5) / 5)
    assert "mlperf, exact match" not in lines
    assert found.notes == ()
    page = render(load_run(run.layout.root), START)
    assert "What the final models can do" in page
    assert 'id="figure-passes"' in page
    assert found.change in page


def lines_of(run: RunBuilder) -> tuple[dict[str, Line], Evaluation]:
    found = evaluate(load_run(run.layout.root))
    assert found is not None
    return {line.name: line for line in found.lines}, found


def test_race_figures_by_hand(run: RunBuilder) -> None:
    """Three races; the guesses are yes, no, none, and yes where there is no race."""
    rows: Columns = {
        "race_label": (1.0, 1.0, 1.0, 0.0, 0.0), "race_guess": (1.0, 0.0, 0.0, 1.0, 0.0),
        "race_undecided": (0.0, 0.0, 1.0, 0.0, 1.0), "race_forced": (1.0, 1.0, 0.0, 0.0, 0.0),
    }  # fmt: skip
    add(run, run.final(RECIPE, "recipe", 1, 0, [0] * 5), measured(rows))
    found = {name: line.recipe.mean for name, line in lines_of(run)[0].items() if line.recipe}
    assert found == {
        "data race, F1": pytest.approx(2 / 5),
        "data race, precision": pytest.approx(1 / 2),
        "data race, recall": pytest.approx(1 / 3),
        "data race, accuracy": pytest.approx(1 / 5),
        "data race, neither yes nor no": pytest.approx(2 / 5),
        "data race, forced choice": pytest.approx(2 / 5),
    }


def test_a_share_of_nothing_is_none_of_it(run: RunBuilder) -> None:
    rows: Columns = {"race_label": (1.0,), "race_guess": (0.0,), "race_undecided": (1.0,)}
    add(run, run.final(RECIPE, "recipe", 1, 0, [0]), measured(rows))
    precision = lines_of(run)[0]["data race, precision"].recipe
    assert precision is not None
    assert (precision.mean, precision.low, precision.high) == (0, 0, 0)


def test_avgscore_is_the_mean_reward_of_the_mlperf_rows(run: RunBuilder) -> None:
    rows: Columns = {"mlperf_exact": (None, 1.0, 0.0, None)}
    add(run, run.final(RECIPE, "recipe", 1, 0, [0, 1, 0.5, 0]), measured(rows))
    lines, _ = lines_of(run)
    exact, average = lines["mlperf, exact match"].recipe, lines["mlperf, AvgScore"].recipe
    assert exact is not None
    assert average is not None
    assert (exact.mean, average.mean, average.rows) == (0.5, 0.75, 2)


def test_a_recipe_that_wins_is_the_winner(run: RunBuilder) -> None:
    """The controller runs it once only, as the recipe."""
    right, wrong = measured({"correct": (4.0,) * 3}), measured({"correct": (0.0,) * 3})
    run.incumbent(0, RECIPE, 0.5)
    for seed in (1, 2):
        add(run, run.final(RECIPE, "recipe", seed, 0, [1, 1, 1], base=[0, 0, 0]), right, wrong)
    lines, found = lines_of(run)
    assert found.change.startswith("Expansion")
    assert set(found.curves) == {"winner", "base"}
    assert lines["pass@1"].recipe is None
    assert lines["pass@1"].winner is not None
    assert lines["pass@1"].winner.mean == 1
    assert "win rate against the recipe" not in lines
    assert lines["win rate against the base"].winner is not None


@pytest.mark.parametrize(
    "other",
    [
        measured({"correct": (4.0, 4.0)}, (1, 1, 1)),
        measured({"correct": (4.0, None)}, (1, 1)),
        measured({"correct": (5.0, 4.0)}, (1, 1)),
        measured({"correct": (0.5, 4.0)}, (1, 1)),
        measured({"correct": (4.0, 4.0, 4.0)}, (1, 1)),
    ],
    ids=["other questions", "other rows", "more right than samples", "half a sample", "more rows than scores"],
)
def test_a_run_that_fits_no_other_is_left_out_and_named(run: RunBuilder, other: Measured) -> None:
    add(run, run.final(RECIPE, "recipe", 1, 0, [0, 1]), measured({"correct": (2.0, 2.0)}, (1, 0)))
    add(run, run.final(RECIPE, "recipe", 2, 0, [0, 1]), other)
    lines, found = lines_of(run)
    capability = lines["capability, multiple choice"].recipe
    assert capability is not None
    assert capability.by_seed == (0.5,)
    [note] = found.notes
    assert note.startswith("Seed 2 of the recipe")
    assert note in render(load_run(run.layout.root), START)


def test_winner_and_recipe_of_different_checkpoints_are_named(tmp_path: Path) -> None:
    bases = {"early": "builtin:tiny-xs", "late": "builtin:tiny-s"}
    models = [{"name": name, "path": "builtin:tiny-xs", "bases": bases} for name in ("small", "large")]
    run = RunBuilder(tmp_path / "run", {"models": models, "algorithm": {"base": "early"}})
    add(run, run.final(RECIPE, "recipe", 1, 0, [0, 1], base=[0, 0]), measured({}), measured({}))
    add(run, run.final(WINNER, "final", 1, 0, [1, 1]), measured({}))
    assert lines_of(run)[1].notes == ()
    add(run, run.final(WINNER | {"base": "late"}, "final", 2, 0, [1, 1]), measured({}))
    [note] = lines_of(run)[1].notes
    assert "different checkpoints" in note


def test_without_measurements_nothing_is_shown(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [0, 1])
    assert evaluate(load_run(run.layout.root)) is None
    page = render(load_run(run.layout.root), START)
    assert "What the final models can do" not in page
    assert 'id="figure-passes"' not in page


def test_a_damaged_file_is_a_problem_and_no_fault(run: RunBuilder) -> None:
    trial = run.final(RECIPE, "recipe", 1, 0, [0, 1])
    run.layout.attempt(trial, 1).evaluation.write_text("{")
    data = load_run(run.layout.root)
    assert evaluate(data) is None
    assert any("evaluation.json" in problem for problem in data.problems)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        measured({"correct": (1.0,), "race_guess": (0.0, 1.0)})


def test_the_interval_of_a_difference_is_paired(run: RunBuilder) -> None:
    """Rows differ much, the models by the same on each: the difference is sure."""
    rng = np.random.default_rng(0)
    rows = tuple(float(x) for x in rng.integers(0, 4, 200))
    add(run, run.final(RECIPE, "recipe", 1, 0, [0] * 200), measured({"plp_similarity": tuple(x / 10 for x in rows)}))
    add(
        run,
        run.final(WINNER, "final", 1, 0, [0] * 200),
        measured({"plp_similarity": tuple(x / 10 + 0.01 for x in rows)}),
    )
    found = evaluate(load_run(run.layout.root))
    assert found is not None
    [line] = [line for line in found.lines if line.name == "plp, similarity"]
    assert line.winner is not None
    assert line.over_recipe is not None
    assert line.winner.high - line.winner.low > 0.02
    assert line.over_recipe.low == pytest.approx(0.01) == line.over_recipe.high
