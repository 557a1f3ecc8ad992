"""The problems that methods are raced on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import recorded
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.ensemble import ExtraTreesRegressor

from hpcjf.core.space import Space
from hpcjf.errors import UserError
from race import cases, lcbench, scan, smooth
from race.cube import Cube
from race.forest import Forest
from race.hartmann import FULL_SECONDS, Hartmann
from race.known import Known
from race.problem import Array
from race.recording import read, recorded_curves
from race.surface import Surface
from race.surfaces import Surfaces, correlations, errors, main


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.write_surfaces(tmp_path_factory.mktemp("surfaces") / "surfaces.h5")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    return recorded.write_scan(recorded.write_lcbench(folder, "1"))


Maker = Callable[[], Known]
MAKERS = ("xs>m", "s>l", "lcbench", "scan-llm", "scan-vlm", "mfh3", "mfh6")


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest, recording: Path, files: Path) -> Maker:
    """Makes a problem anew."""
    makers: dict[str, Maker] = {
        "xs>m": lambda: Surfaces("arithmetic", ["xs", "m"], path=recording),
        "s>l": lambda: Surfaces("arithmetic", ["s", "l"], path=recording),
        "lcbench": lambda: lcbench.LCBench("1", files),
        "scan-llm": lambda: scan.Scan("llm", files),
        "scan-vlm": lambda: scan.Scan("vlm", files),
        "mfh3": lambda: Hartmann(3),
        "mfh6": lambda: Hartmann(6),
    }
    return makers[request.param]


def some(problem: Known, number: int = 40) -> list[dict[str, Any]]:
    return [dict(config) for config in Space(problem.space).sample(number, np.random.default_rng(11))]


def test_every_problem_keeps_the_contract(make: Maker) -> None:
    problem = make()
    steps, (worst, best) = problem.rungs[-1], problem.span
    assert list(problem.rungs) == sorted(set(problem.rungs))
    assert [m.parameters for m in problem.models] == sorted(m.parameters for m in problem.models)
    assert Space(problem.space).contains(problem.recipe)
    for config in [problem.recipe, *some(problem)]:
        assert worst <= problem.truth(config) <= best
        for model in problem.models:
            curve = problem.curve(config, model.name, 3)
            arrays = (curve.seconds, curve.score, curve.kl, curve.reward, curve.reward_std)
            assert {array.shape for array in arrays} == {(steps,)}
            assert curve.seconds[0] > 0
            assert (np.diff(curve.seconds) >= 0).all()
            for rung in problem.rungs:
                assert (curve.score_at(rung) is None) == (curve.broken is not None and curve.broken <= rung)
            assert np.isfinite([curve.kl, curve.reward]).all() == problem.dynamics
    assert all(problem.startup_seconds(model.name) > 0 for model in problem.models)


def test_the_same_question_gets_the_same_answer(make: Maker) -> None:
    one, other = make(), make()
    target = one.models[-1].name
    configs = some(one, 5)
    for config in configs:
        answer = one.curve({**config, "of_no_matter": 1}, target, 7)
        # asked in another order, in other number types
        again = other.curve({name: float(v) if isinstance(v, int) else v for name, v in config.items()}, target, 7)
        for name in ("seconds", "score", "kl", "reward", "reward_std"):
            np.testing.assert_array_equal(getattr(answer, name), getattr(again, name))
        assert one.truth(config) == other.truth(config)
        other.curve(configs[0], other.models[0].name, 0)
    assert one.span == other.span


def test_truth_is_the_mean_of_final_scores_and_noise_is_as_recorded(recording: Path) -> None:
    problem = Surfaces("arithmetic", ["xs", "m"], path=recording)
    for config in some(problem, 4):
        scores = np.array([problem.curve(config, "m", seed).score_at(recorded.STEPS) for seed in range(300)], float)
        assert scores.mean() == pytest.approx(problem.truth(config), abs=4 * recorded.NOISE / np.sqrt(300))
        assert recorded.NOISE / 2 < scores.std() < recorded.NOISE * 2
        kl = np.array([problem.curve(config, "m", seed).kl for seed in range(300)])
        assert np.log(kl[:, 5:]).std(axis=0).mean() == pytest.approx(0.1, rel=0.5)


def test_models_draw_their_own_noise(recording: Path) -> None:
    """Also ``l``, whose noise has the size of that of ``m``."""
    problem = Surfaces("arithmetic", ["m", "l"], path=recording)
    drawn = []
    for seed in range(100):
        curves = [problem.curve(problem.recipe, model, seed) for model in ("m", "l")]
        drawn.append([curve.score_at(recorded.STEPS) or 0.0 for curve in curves])
    assert abs(np.corrcoef(np.transpose(drawn))[0, 1]) < 0.3


def test_surfaces_find_the_function_that_was_recorded(recording: Path) -> None:
    known = read(recording)
    places = np.random.default_rng(4).random((200, 6))
    places[:, 1] = np.rint(places[:, 1])
    for model in recorded.PARAMETERS:
        figures = errors(known, "arithmetic", model)
        assert figures["configurations"] == (16 if model == "l" else 48)
        assert figures["spearman"] > 0.85
        assert figures["rmse"] < figures["spread"] / 2
        guess = Surface(known, "arithmetic", model).mean("score", places)[:, -1]
        truth = recorded.final_scores(places, model)
        assert np.sqrt(np.mean((guess - truth) ** 2)) < (0.05 if model == "l" else 0.03)
    assert errors(known, "arithmetic", "m")["seed_noise"] == pytest.approx(recorded.NOISE, rel=0.4)


def test_a_rarely_recorded_model_leans_on_a_smaller_one(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = read(recording)
    leaning = errors(known, "arithmetic", "l")["rmse"]
    monkeypatch.setattr("race.surface._better_known", lambda *_: None)
    assert leaning < errors(known, "arithmetic", "l")["rmse"]


def test_correlations_are_between_shared_configurations(recording: Path) -> None:
    found = {(one, other): (rho, shared) for one, other, rho, shared in correlations(read(recording), "arithmetic")}
    assert len(found) == 6
    assert found["s", "m"][0] > found["xs", "m"][0]
    assert (found["m", "l"][1], found["xs", "s"][1]) == (16, 48)


def test_training_diverges_where_it_was_seen_to(tmp_path: Path) -> None:
    path = recorded.write_surfaces(tmp_path / "surfaces.h5", diverged=20)
    problem, config = Surfaces("arithmetic", ["xs", "m"], path=path), read(path).configs[20]
    assert problem.curve(config, "m", 0).broken == 25
    assert problem.curve(config, "m", 0).score_at(20) is not None
    assert problem.truth(config) == problem.span[0]
    assert problem.curve(config, "xs", 0).broken is None
    broken = [problem.curve(each, "m", 0).broken for each in some(problem, 100)]
    assert 0 < sum(step == 25 for step in broken) < 30
    curve = next(curve for _, model, curve in recorded_curves(path) if model == "m" and curve.broken)
    assert curve.broken == 25
    assert (np.diff(curve.seconds) >= 0).all()
    assert curve.score_at(24) is not None


def test_recorded_curves_are_those_of_the_file(recording: Path) -> None:
    curves = recorded_curves(recording)
    assert len(curves) == 3 * (48 + 16) + 16
    assert [model for _, model, _ in curves].count("l") == 16
    for task, _, curve in curves[:5]:
        assert task == "arithmetic"
        assert np.isfinite(curve.score).sum() == recorded.STEPS // recorded.EVERY
        assert curve.broken is None


def test_startup_as_recorded_or_at_the_scale_of_the_paper(recording: Path) -> None:
    measured = Surfaces("arithmetic", ["xs", "m"], "recorded", recording)
    assert [measured.startup_seconds(model) for model in ("xs", "m")] == [4.0, 6.0]
    scaled = Surfaces("arithmetic", ["xs", "m"], path=recording)
    full = np.mean([scaled.curve(config, "m", 0).seconds[-1] for config in some(scaled, 200)])
    assert scaled.startup_seconds("xs") == scaled.startup_seconds("m") == pytest.approx(0.01 * full, rel=0.1)


def test_people_read_the_errors(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recording)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Spearman") == 1 + 6
    assert [line.split()[0] for line in shown.splitlines()[2:6]] == ["xs", "s", "m", "l"]
    assert main([str(tmp_path / "none.h5")]) == 2
    assert "tools/record_surface" in capsys.readouterr().err


def test_what_was_not_recorded_is_refused(recording: Path) -> None:
    for task, models in (("subtraction", ["xs", "m"]), ("arithmetic", ["xs", "xl"])):
        with pytest.raises(UserError, match="no curves"):
            Surfaces(task, models, path=recording)


@pytest.mark.parametrize("name", [name for name in cases.PROBLEMS if " " in name])
def test_the_recorded_surfaces_are_good_enough(name: str) -> None:
    problem = cases.problem_of(name)
    task, target = name.split()[0], problem.models[-1].name
    figures = errors(read(), task, target)
    assert figures["spearman"] > 0.9
    assert figures["rmse"] < 0.045
    worst, best = problem.span
    assert worst <= problem.truth(problem.recipe) < best
    assert problem.rungs == (10, 40, 150)


def test_smoothing_finds_which_dimension_matters() -> None:
    rng = np.random.default_rng(0)
    points = rng.random((60, 3))
    curves = np.sin(5 * points[:, :1]) * np.arange(1.0, 6.0) + 0.3 * rng.standard_normal((60, 5))
    new = rng.random((200, 3))
    smoother = smooth.Smoother(points, curves, np.ones(60))
    assert np.abs(smoother.predict(new) - np.sin(5 * new[:, :1]) * np.arange(1.0, 6.0)).mean() < 0.15
    along = smoother.nearness(np.zeros((1, 3)), np.eye(3) / 2)[0]
    assert along[0] < along[1:].min()


def test_the_gradient_of_smoothing_is_right() -> None:
    rng = np.random.default_rng(1)
    points, curves, repeats = rng.random((12, 3)), rng.standard_normal((12, 4)), rng.integers(1, 3, 12).astype(float)
    apart = (points[:, None] - points[None]) ** 2
    logs = 0.3 * rng.standard_normal(5)
    slope = approx_fprime(logs, lambda at: smooth._loss(at, apart, curves, repeats)[0], 1e-6)
    np.testing.assert_allclose(smooth._loss(logs, apart, curves, repeats)[1], slope, atol=1e-4)


def test_a_mean_of_many_recordings_is_smoothed_less() -> None:
    points = np.linspace(0, 1, 20)[:, None]
    noise = np.random.default_rng(2).standard_normal((20, 8))
    curves = 3 * np.sin(6 * points) + noise
    often = np.where(np.arange(20) == 10, 100.0, 1.0)
    smoothed = [smooth.Smoother(points, curves, repeats).predict(points) for repeats in (np.ones(20), often)]
    left = [np.abs(each - curves)[10].mean() for each in smoothed]
    assert left[1] < left[0] / 3


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_forest_is_that_of_scikit_learn(outputs: int) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.random((200, 4)), rng.random((200, outputs))
    reference = ExtraTreesRegressor(100, min_samples_leaf=2, max_features=1.0, random_state=0)
    reference.fit(inputs, targets[:, 0] if outputs == 1 else targets)
    new = rng.random((50, 4))
    expected = reference.predict(new).reshape(50, outputs)
    np.testing.assert_allclose(Forest(inputs, targets).predict(new), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("dimensions", "best", "at"),
    [
        (3, 3.86278, (0.114614, 0.555649, 0.852547)),
        (6, 3.32237, (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)),
    ],
)
def test_hartmann_has_its_known_optimum(dimensions: int, best: float, at: tuple[float, ...]) -> None:
    problem = Hartmann(dimensions)
    config = dict(zip(problem.space, at, strict=True))
    assert problem.truth(config) == pytest.approx(best, abs=1e-5)
    curves = [problem.curve(config, "one", seed) for seed in range(50)]
    assert {curve.score_at(100) for curve in curves} == {problem.truth(config)}
    low = np.array([curve.score[0] for curve in curves])
    assert low.std() > 0.5  # half-normal noise of scale 2 at the lowest fidelity
    assert low.mean() < best - 2.0
    np.testing.assert_allclose(curves[0].seconds[[0, 49, 99]] / FULL_SECONDS, [0.05 + 0.95e-4, 0.2875, 1.0])


@given(st.integers(0, 2**31))
def test_the_cube_goes_there_and_back(seed: int) -> None:
    cube = Cube(recorded.SPACE)
    points = np.random.default_rng(seed).random((3, 6))
    configs = cube.configs(points)
    assert all(Space(recorded.SPACE).contains(config) for config in configs)
    assert cube.configs(cube.points(configs)) == configs
    np.testing.assert_allclose(cube.points(configs), cube.snapped(points), atol=1e-9)
    np.testing.assert_allclose(cube.points(configs), Space(recorded.SPACE).encode(configs), atol=1e-9)


def test_there_are_24_cases_with_seeds_of_their_own() -> None:
    assert len(set(cases.CASES)) == 24
    assert not set(cases.BLOCKS["A"]) & set(cases.BLOCKS["B"])
    assert cases.problem_of("mfh3").name == "mfh3"
    for name in ("mfh4", "scan-tabular", "nonsense", "arithmetic m"):
        with pytest.raises(UserError, match="no problem"):
            cases.problem_of(name)


def test_seconds_of_lcbench_and_its_missing_table(files: Path) -> None:
    problem = lcbench.LCBench("1", files)
    point = problem._cube.points([problem.recipe])[0]
    assert problem.curve(problem.recipe, "one", 0).seconds[-1] == pytest.approx(52 * (1 + point[0]), rel=0.1)
    assert lcbench.errors("1", files)["spearman"] > 0.7
    with pytest.raises(UserError, match="HPCJF_TEST_DATA"):
        lcbench.LCBench("2", files)


def test_only_large_rates_diverge_in_scan_and_only_in_its_second_table(files: Path) -> None:
    problems = {kind: scan.Scan(kind, files) for kind in ("llm", "vlm")}
    for rate, kind, broken in ((0.95, "vlm", 14), (0.5, "vlm", None), (0.95, "llm", None)):
        problem = problems[kind]
        point = np.full(len(problem.space), 0.5)
        point[0] = rate
        config = problem._cube.configs(point[None])[0]
        curve = problem.curve(config, problem.models[-1].name, 0)
        assert curve.broken == broken
        assert np.isnan(curve.score[:2]).all()
        assert (problem.truth(config) == problem.span[0]) == (broken is not None)
    proxy, target = (problems["vlm"].curve(problems["vlm"].recipe, name, 0).seconds for name in ("w128", "w448"))
    np.testing.assert_allclose(target / proxy, 7.67e9 / 6.92e8)
    assert scan.errors(scan.LLM, files)["final_spearman"] > 0.8


@pytest.mark.data
@pytest.mark.parametrize("task", ["126025", "3945", "7593"])
def test_the_tables_of_lcbench(task: str, data_dir: Path) -> None:
    assert lcbench.errors(task, data_dir)["spearman"] > 0.88
    problem = lcbench.LCBench(task, data_dir)
    configs = some(problem, 300)
    truths: Array = np.array([problem.truth(config) for config in configs])
    assert min(np.diff(problem.curve(config, "one", 0).seconds).min() for config in configs) >= 0
    assert problem.span[0] <= truths.min()
    assert truths.max() <= problem.span[1]


@pytest.mark.data
@pytest.mark.parametrize(("kind", "floor"), [("llm", 0.87), ("vlm", 0.93)])
def test_the_tables_of_scan_bench(kind: str, floor: float) -> None:
    assert scan.errors(scan.SUITES[kind])["spearman"] > floor
    problem = scan.Scan(kind)
    worst, best = problem.span
    assert problem.truth(problem.recipe) > best - 0.1 * (best - worst)
    broken = [problem.curve(config, problem.models[-1].name, 0).broken for config in some(problem, 100)]
    assert any(broken) == (kind == "vlm")
