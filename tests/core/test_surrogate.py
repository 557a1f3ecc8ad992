import numpy as np
import pytest

from hpcjf.core.space import Space
from hpcjf.core.surrogate import GaussianProcess, Inputs, JointKernel, Prior, fitted_kernel, scale_of
from hpcjf.study import RealRange
from hpcjf.types import Fidelity

PRIOR = Prior(np.array([0.5, 1.0]))
FULL = [0.0, 0.0]


def process(rows: np.ndarray, values: np.ndarray) -> GaussianProcess:
    centre, scale = standard = scale_of(values)
    return GaussianProcess(fitted_kernel(rows, (values - centre) / scale, PRIOR), rows, values, standard)


def at(points: np.ndarray, fidelity: list[float] = FULL) -> np.ndarray:
    return np.hstack([points, np.tile(fidelity, (len(points), 1))])


def truth(points: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(5 * points[:, 0]) + 0.3 * points[:, 1])


def fitted(n: int, seed: int = 0, scale: float = 1.0) -> tuple[GaussianProcess, np.ndarray]:
    points = np.random.default_rng(seed).random((n, 2))
    return process(at(points), scale * truth(points)), at(points)


def test_it_predicts_between_its_points_and_is_surer_near_them() -> None:
    fit, rows = fitted(25)
    grid = np.random.default_rng(1).random((50, 2))
    assert np.sqrt(np.mean((fit.mean(at(grid)) - truth(grid)) ** 2)) < 0.1
    assert fit.variance(rows).max() < fit.variance(np.array([[3.0, 3.0, 0, 0]]))[0]


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("level", [0.0, 0.25, 1e6])
def test_equal_values_and_few_points_stay_sane(n: int, level: float) -> None:
    rows = at(np.linspace(0, 1, 2 * n).reshape(n, 2))
    fit = process(rows, np.full(n, level))
    assert fit.mean(rows) == pytest.approx(np.full(n, level))
    assert np.isfinite(fit.variance(rows)).all()
    assert (fit.variance(rows) > 0).all()


def test_repeated_points_that_disagree_are_noise() -> None:
    rows = at(np.repeat(np.array([[0.1, 0.1], [0.9, 0.9]]), 4, axis=0))
    fit = process(rows, np.array([0.0, 0.2, 0.1, 0.1, 1.0, 1.2, 1.1, 1.1]))
    assert fit.mean(rows[[0, 4]]) == pytest.approx([0.1, 1.1], abs=0.1)
    assert fit.noise_variance(rows)[0] > 1e-4


def test_the_scale_of_the_values_is_no_matter() -> None:
    small, rows = fitted(12)
    large, _ = fitted(12, scale=1000.0)
    assert large.mean(rows) == pytest.approx(1000 * small.mean(rows), rel=1e-3)


def test_covariance_agrees_with_the_joint_formula() -> None:
    fit, rows = fitted(8)
    left, right = np.array([[0.2, 0.3, 0, 0]]), np.array([[0.2, 0.3, -1, -0.5], [0.2, 0.3, 0, 0]])
    gram = fit.kernel(rows) + np.diag(fit.noise_variance(rows)) / fit.standard[1] ** 2
    cross = fit.kernel(left, rows) @ np.linalg.solve(gram, fit.kernel(rows, right))
    expected = fit.standard[1] ** 2 * (fit.kernel(left, right) - cross)[0]
    assert fit.covariance(fit.look(left), fit.look(right), np.array([0, 0])) == pytest.approx(expected, rel=1e-5)
    assert expected[1] == pytest.approx(fit.variance(left)[0])


def test_fantasies_shrink_the_variance_and_keep_the_mean() -> None:
    fit, _ = fitted(6)
    point, elsewhere = at(np.array([[0.95, 0.05]])), at(np.array([[0.5, 0.5], [0.1, 0.9]]))
    believed = fit.believe(point)
    assert believed.variance(point)[0] < 0.5 * fit.variance(point)[0]
    assert believed.mean(elsewhere) == pytest.approx(fit.mean(elsewhere), abs=1e-6)
    assert fit.believe(np.zeros((0, 4))) is fit


def test_a_value_that_is_believed_moves_the_mean_there() -> None:
    fit, _ = fitted(6)
    point = at(np.array([[0.95, 0.05]]))
    assert fit.believe(point, np.array([5.0])).mean(point)[0] > fit.mean(point)[0] + 1


def test_the_fit_is_deterministic() -> None:
    first, rows = fitted(10)
    np.random.seed(99)
    second, _ = fitted(10)
    assert first.mean(rows).tolist() == second.mean(rows).tolist()


def test_a_fit_that_goes_on_from_another_ends_where_a_fresh_one_does() -> None:
    points = np.random.default_rng(2).random((40, 2))
    rows, values = at(points), truth(points)
    fresh = fitted_kernel(rows, values, PRIOR)
    again = fitted_kernel(rows, values, PRIOR, fresh)
    assert again.theta == pytest.approx(fresh.theta, abs=0.1)


def test_the_gradient_of_the_kernel_is_its_derivative() -> None:
    rows = np.random.default_rng(0).random((7, 4)) * [1, 1, -1, -1]
    kernel = JointKernel(np.array([0.5, 2.0]), model=0.3, budget=0.2, growth=1.4)
    assert np.diag(kernel(rows)) == pytest.approx(kernel.diag(rows))
    _, gradient = kernel(rows, eval_gradient=True)
    for i, step in enumerate(1e-5 * np.eye(len(kernel.theta))):
        up, down = (kernel.clone_with_theta(kernel.theta + sign * step)(rows) for sign in (1, -1))
        assert gradient[:, :, i] == pytest.approx((up - down) / 2e-5, abs=1e-7)


def test_a_proxy_that_ranks_as_the_target_does_is_trusted_and_one_that_does_not_is_not() -> None:
    points = np.random.default_rng(3).random((30, 2))
    rows = np.vstack([at(points), at(points, [-1.0, 0.0])])
    alike = np.hstack([truth(points), truth(points) + 0.1])
    unlike = np.hstack([truth(points), np.cos(7 * points[:, 0])])
    assert process(rows, alike).trust[0] > 0.95 > 0.8 > process(rows, unlike).trust[0]


def test_differences_that_grow_with_the_budget_are_expected_to_grow() -> None:
    points = np.random.default_rng(4).random((30, 2))
    rows = np.vstack([at(points), at(points, [0.0, -1.0])])
    fit = process(rows, np.hstack([truth(points), 0.1 * truth(points)]))
    new = np.array([[0.3, 0.7]])
    told = fit.believe(at(new, [0.0, -1.0]), np.array([0.1]))
    assert told.mean(at(new))[0] - fit.mean(at(new))[0] >= 0 or fit.mean(at(new))[0] > 0.9
    assert np.ptp(fit.mean(at(points))) > 5 * np.ptp(fit.mean(at(points, [0.0, -1.0])))


def test_noise_of_short_runs_does_not_cloud_full_ones() -> None:
    rng = np.random.default_rng(5)
    points = rng.random((60, 2))
    rows = np.vstack([at(points[:20]), at(points, [0.0, -1.0])])
    values = np.hstack([truth(points[:20]), truth(points) + rng.standard_normal(60)])
    fit = process(rows, values)
    full, short = fit.noise_variance(np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, -1.0]]))
    assert full < 0.02
    assert 0.5 < short < 2
    assert fit.mean(rows[:20]) == pytest.approx(truth(points[:20]), abs=0.15)


def inputs(**sizes: int) -> Inputs:
    space = Space({"x": RealRange(low=0, high=1)})
    return Inputs(space, sizes, list(sizes)[-1], least_steps=10, full_steps=90)


def places(of: Inputs, *fidelities: Fidelity) -> list[list[float]]:
    return [row[1:].tolist() for row in of.encode([{"x": 0.5}] * len(fidelities), fidelities)]


def test_the_target_at_full_budget_is_the_origin_of_the_fidelities() -> None:
    of = inputs(small=10**5, middle=10**6, large=10**7)
    near = places(of, Fidelity("large", 90), Fidelity("small", 10), Fidelity("middle", 30))
    assert np.array(near) == pytest.approx(np.array([[0, 0], [-1, -1], [-0.5, -0.5]]))
    assert of.at_full(of.space.encode([{"x": 0.5}])).tolist() == [[0.5, 0, 0]]


def test_models_of_unknown_or_equal_size_are_still_told_apart() -> None:
    of = inputs(small=1, middle=1, large=1)
    found = places(of, *(Fidelity(name, 90) for name in ("small", "middle", "large")))
    assert [row[0] for row in found] == [-1, -0.5, 0]


def test_a_model_above_the_target_from_an_earlier_study_lies_beyond_it() -> None:
    of = Inputs(Space({"x": RealRange(low=0, high=1)}), {"s": 10, "m": 100, "l": 1000}, "m", 10, 90)
    found = places(of, *(Fidelity(name, 90) for name in ("s", "m", "l")))
    assert [row[0] for row in found] == pytest.approx([-1, 0, 1])


def test_a_single_model_and_a_single_budget_are_no_axis() -> None:
    only = Inputs(Space({"x": RealRange(low=0, high=1)}), {"m": 5}, "m", least_steps=7, full_steps=7)
    assert places(only, Fidelity("m", 7)) == [[0.0, 0.0]]
