from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from peers import answer_of

from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.tpe import Categories, Numbers, good_count, weights
from hpcjf.types import Cause, Fidelity, Proposal


@pytest.mark.parametrize(("n", "good"), [(1, 1), (10, 1), (11, 2), (95, 10), (250, 25), (1000, 25)])
def test_a_tenth_is_good_and_never_more_than_25(n: int, good: int) -> None:
    assert good_count(n) == good


def test_the_newest_25_weigh_most() -> None:
    assert weights(0).tolist() == [1.0]
    assert weights(24) == pytest.approx([1 / 25] * 25)
    share = weights(28)
    assert share / share[-1] == pytest.approx([1 / 28, (1 / 28 + 1) / 2, 1.0, *[1.0] * 26])


@pytest.mark.parametrize(
    ("seen", "widths"),
    [
        ([], [1.0]),
        ([0.3], [0.7, 1.0]),
        ([0.9, 0.2, 0.5], [0.4, 0.3, 0.4, 1.0]),
        ([0.5, 0.51, 0.52, 0.53], [1 / 6, 1 / 6, 1 / 6, 1 / 6, 1.0]),
    ],
)
def test_a_kernel_is_as_wide_as_the_larger_gap_to_a_neighbour(seen: list[float], widths: list[float]) -> None:
    mixture = Numbers(np.array(seen))
    assert mixture.widths == pytest.approx(widths)
    assert mixture.means.tolist() == [*seen, 0.5]


def test_a_density_of_numbers_is_one_in_sum() -> None:
    grid = (np.arange(4000) + 0.5) / 4000
    assert np.exp(Numbers(np.array([0.02, 0.4, 0.41])).log(grid)).mean() == pytest.approx(1.0, abs=1e-6)


def test_categories_are_counted_and_smoothed() -> None:
    # rows (1.25, .25, .25) / 1.75 twice, (.25, 1.25, .25) / 1.75, and the prior's thirds, a quarter each
    assert Categories(np.array([0.0, 0.0, 1.0]), 3).shares == pytest.approx([0.476190, 0.333333, 0.190476], abs=1e-6)
    assert Categories(np.array([]), 2).shares == pytest.approx([0.5, 0.5])


OPTUNA = """
import json, sys
import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.sampler import default_gamma, default_weights
parameters = _ParzenEstimatorParameters(1.0, True, False, default_weights, False)
logs = []
for seen, at, choices in json.load(sys.stdin):
    space = CategoricalDistribution(list(range(choices))) if choices else FloatDistribution(0, 1)
    estimator = _ParzenEstimator({"x": np.array(seen)}, {"x": space}, parameters)
    logs.append(estimator.log_pdf({"x": np.array(at)}).tolist())
print(json.dumps([logs, [default_gamma(n) for n in range(1, 400)]]))
"""


@pytest.mark.full
def test_densities_are_optunas() -> None:
    rng = np.random.default_rng(0)
    at = [0.01, 0.2, 0.5, 0.77, 1.0]
    numbers = [([0.3], at, 0), ([0.2, 0.5, 0.9], at, 0), (rng.random(40).tolist(), at, 0), ([0.4] * 30, at, 0)]
    categories = [([0, 0, 1], [0, 1, 2], 3), (rng.integers(4, size=60).tolist(), [0, 1, 2, 3], 4)]
    logs, gammas = answer_of("optuna", OPTUNA, [*numbers, *categories])
    for (seen, points, choices), theirs in zip([*numbers, *categories], logs, strict=True):
        mixture = Categories(np.array(seen), choices) if choices else Numbers(np.array(seen))
        assert mixture.log(np.array(points)) == pytest.approx(theirs, abs=1e-12)
    assert [good_count(n) for n in range(1, 400)] == gammas


def told(synthetic: Any, scores: list[float | None], **changes: Any) -> tuple[Any, list[Proposal]]:
    """A searcher after random trials with these scores; None is out of memory, a negative one stopped by KL."""
    searcher = make_searcher("tpe", synthetic.problem(max_trials=None, **changes))
    asked = []
    for number, score in enumerate(scores):
        asked.append(searcher.ask(number, []))
        cause = Cause.OUT_OF_MEMORY if score is None else Cause.STOPPED_KL if score < 0 else Cause.COMPLETED
        observation = synthetic.observe(number, asked[-1], score and abs(score), cause)
        steps = 90 if cause is Cause.COMPLETED else 40
        searcher.tell(replace(observation, fidelity=Fidelity("m", steps)))
    return searcher, asked


def test_the_split_by_hand(synthetic: Any) -> None:
    searcher, asked = told(synthetic, [0.1, 0.5, None, 0.2, -0.9, 0.6, 0.3, 0.4, 0.15, 0.25, 0.35])
    good, bad = searcher.split()
    assert good == [asked[1].config, asked[5].config]
    assert bad == [asked[number].config for number in (0, 2, 3, 4, 6, 7, 8, 9, 10)]


def test_what_failed_is_never_good(synthetic: Any) -> None:
    searcher, asked = told(synthetic, [None] * 12 + [-0.3] + [None] * 8)
    good, bad = searcher.split()
    assert good == [asked[12].config]
    assert len(bad) == 20


def test_ten_trials_are_random_before_the_estimator_takes_over(synthetic: Any) -> None:
    searcher, asked = told(synthetic, [0.1 * number for number in range(10)])
    assert [p.why["reason"] for p in asked] == ["recipe", *["random"] * 9]
    proposal = searcher.ask(10, [])
    assert proposal.why == {"reason": "model", "good": 1, "bad": 9, "resumed_from": 0}
    assert proposal.fidelity == Fidelity("m", 90)


def test_proposals_gather_where_it_was_good(synthetic: Any) -> None:
    searcher = make_searcher("tpe", synthetic.problem(max_trials=None))
    for number in range(60):
        proposal = searcher.ask(number, [])
        off = abs(math.log10(proposal.config["learning_rate"]) + 4.4)
        worse = 0.5 * (proposal.config["lr_scheduler"] == "constant")
        searcher.tell(synthetic.observe(number, proposal, -off - worse))
    asked = [searcher.ask(number, []).config for number in range(60, 120)]
    rates = [math.log10(config["learning_rate"]) for config in asked]
    assert abs(np.median(rates) + 4.4) < 0.4
    assert sum(config["lr_scheduler"] == "cosine" for config in asked) > 50
