import numpy as np
import pytest

from hpcjf.core.space import Space
from hpcjf.core.surrogate import GaussianProcess, Inputs, Prior
from hpcjf.study import RealRange
from hpcjf.types import Fidelity

PRIOR = Prior(np.array([0.5, 1.0]))


def fitted(n: int, seed: int = 0, scale: float = 1.0) -> tuple[GaussianProcess, np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).random((n, 2))
    y = scale * (np.sin(5 * x[:, 0]) + 0.3 * x[:, 1])
    return GaussianProcess.fit(x, y, PRIOR), x, y


def test_it_predicts_between_its_points_and_is_surer_near_them() -> None:
    process, x, _ = fitted(25)
    grid = np.random.default_rng(1).random((50, 2))
    truth = np.sin(5 * grid[:, 0]) + 0.3 * grid[:, 1]
    assert np.sqrt(np.mean((process.mean(grid) - truth) ** 2)) < 0.1
    assert process.variance(x).max() < process.variance(np.array([[3.0, 3.0]]))[0]


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("level", [0.0, 0.25, 1e6])
def test_equal_values_and_few_points_stay_sane(n: int, level: float) -> None:
    x = np.linspace(0, 1, 2 * n).reshape(n, 2)
    process = GaussianProcess.fit(x, np.full(n, level), PRIOR)
    assert process.mean(x) == pytest.approx(np.full(n, level))
    assert np.isfinite(process.variance(x)).all()
    assert (process.variance(x) > 0).all()


def test_repeated_points_that_disagree_are_noise() -> None:
    x = np.repeat(np.array([[0.1, 0.1], [0.9, 0.9]]), 4, axis=0)
    y = np.array([0.0, 0.2, 0.1, 0.1, 1.0, 1.2, 1.1, 1.1])
    process = GaussianProcess.fit(x, y, PRIOR)
    assert process.mean(x[[0, 4]]) == pytest.approx([0.1, 1.1], abs=0.1)
    assert process.noise_variance > 1e-4


def test_the_scale_of_the_values_is_no_matter() -> None:
    small, x, _ = fitted(12)
    large, _, _ = fitted(12, scale=1000.0)
    assert large.mean(x) == pytest.approx(1000 * small.mean(x), rel=1e-3)


def test_covariance_of_a_point_with_itself_is_its_variance() -> None:
    process, x, _ = fitted(8)
    points = np.vstack([x[:2], [[0.5, 0.5]]])
    assert process.covariance(points, points) == pytest.approx(process.variance(points), rel=1e-6)


def test_covariance_agrees_with_the_joint_formula() -> None:
    process, x, _ = fitted(8)
    left, right = np.array([[0.2, 0.3]]), np.array([[0.25, 0.9]])
    gram = process.kernel(x) + process.noise * np.eye(8)
    cross = process.kernel(left, x) @ np.linalg.solve(gram, process.kernel(x, right))
    expected = process.scale**2 * (process.kernel(left, right) - cross)[0, 0]
    assert process.covariance(left, right) == pytest.approx([expected], rel=1e-5)


def test_fantasies_shrink_the_variance_and_keep_the_mean() -> None:
    process, _, _ = fitted(6)
    point, elsewhere = np.array([[0.95, 0.05]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    believed = process.believe(point)
    assert believed.variance(point)[0] < 0.5 * process.variance(point)[0]
    assert believed.mean(elsewhere) == pytest.approx(process.mean(elsewhere), abs=1e-6)
    assert process.believe(np.zeros((0, 2))) is process


def test_the_fit_is_deterministic() -> None:
    first, x, _ = fitted(10)
    np.random.seed(99)
    second, _, _ = fitted(10)
    assert first.mean(x).tolist() == second.mean(x).tolist()


def inputs(**sizes: int) -> Inputs:
    return Inputs(Space({"x": RealRange(low=0, high=1)}), sizes, least_steps=10, full_steps=90)


def rows(of: Inputs, *fidelities: Fidelity) -> list[list[float]]:
    return [row[1:].tolist() for row in of.encode([{"x": 0.5}] * len(fidelities), fidelities)]


def test_the_target_at_full_budget_is_the_origin_of_the_fidelities() -> None:
    of = inputs(small=10**5, middle=10**6, large=10**7)
    near = rows(of, Fidelity("large", 90), Fidelity("small", 10), Fidelity("middle", 30))
    assert np.array(near) == pytest.approx(np.array([[0, 0], [-1, -1], [-0.5, -0.5]]))


def test_models_of_unknown_or_equal_size_are_still_told_apart() -> None:
    of = inputs(small=1, middle=1, large=1)
    assert [row[0] for row in rows(of, *(Fidelity(name, 90) for name in ("small", "middle", "large")))] == [-1, -0.5, 0]


def test_a_single_model_and_a_single_budget_are_no_axis() -> None:
    only = Inputs(Space({"x": RealRange(low=0, high=1)}), {"m": 5}, least_steps=7, full_steps=7)
    assert rows(only, Fidelity("m", 7)) == [[0.0, 0.0]]
