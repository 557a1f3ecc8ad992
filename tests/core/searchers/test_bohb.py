from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from peers import answer_of
from scipy import stats

from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.bohb import Density
from hpcjf.core.space import Space
from hpcjf.study import Categorical, RealRange
from hpcjf.types import Cause, Config, Fidelity, Proposal


def test_numbers_by_hand() -> None:
    density = Density(np.array([[0.2], [0.6]]), [0])
    assert density.widths == pytest.approx([1.06 * 0.2 * 2 ** (-1 / 5)])
    h = 0.184556  # the same as a figure
    expected = (1 + math.exp(-0.5 * (0.4 / h) ** 2)) / (2 * h * math.sqrt(2 * math.pi))
    assert density.at(np.array([[0.2]])) == pytest.approx([expected], rel=1e-5)


def test_categories_by_hand() -> None:
    density = Density(np.array([[0.0], [0.0], [1.0]]), [3])
    h = 1.06 * math.sqrt(2) / 3 * 3 ** (-1 / 5)
    assert density.at(np.array([[0.0], [1.0], [2.0]])) == pytest.approx(
        [(2 * (1 - h) + h / 2) / 3, (1 - h + 2 * h / 2) / 3, h / 2]
    )


def test_equal_values_keep_some_width_and_many_categories_at_most_uniform() -> None:
    assert Density(np.full((5, 1), 0.4), [0]).widths == pytest.approx([1e-3])
    assert Density(np.array([[0.0], [9.0]]), [10]).widths == pytest.approx([0.9])


def tell(synthetic: Any, searcher: Any, trials: range, rung: int, score: Any) -> list[Config]:
    """Random configurations on a rung of the first bracket, whatever was asked."""
    draws = searcher.problem.draws(1000 + rung)
    configs = []
    for trial in trials:
        configs.append(next(draws))
        fidelity = Fidelity("m", searcher.problem.rungs[rung])
        proposal = Proposal(configs[-1], fidelity, {"bracket": 0, "rung": rung})
        value = score(configs[-1])
        cause = Cause.COMPLETED if value is not None else Cause.OUT_OF_MEMORY
        searcher.tell(synthetic.observe(trial, proposal, value, cause))
    return configs


def rate(config: Config) -> float:
    return -abs(math.log10(config["learning_rate"]) + 4.0)


def test_the_highest_budget_with_enough_points_has_the_model(synthetic: Any) -> None:
    searcher = make_searcher("bohb", synthetic.problem(max_trials=None))
    tell(synthetic, searcher, range(9), 0, rate)
    assert searcher.model() is None  # four dimensions: 5 good and 5 bad at the least
    tell(synthetic, searcher, range(9, 10), 1, rate)
    assert searcher.model() is None
    tell(synthetic, searcher, range(10, 11), 2, rate)
    searcher = make_searcher("bohb", synthetic.problem(max_trials=None))
    tell(synthetic, searcher, range(30), 0, rate)
    assert searcher.model()[0] == 10
    tell(synthetic, searcher, range(30, 40), 1, rate)
    assert searcher.model()[0] == 30


@pytest.mark.parametrize(("n", "good", "bad"), [(10, 5, 5), (20, 5, 15), (40, 6, 34), (101, 15, 85)])
def test_15_per_cent_are_good_but_at_least_one_more_than_dimensions(
    n: int, good: int, bad: int, synthetic: Any
) -> None:
    searcher = make_searcher("bohb", synthetic.problem(max_trials=None))
    configs = tell(synthetic, searcher, range(n), 0, rate)
    _, best, worst = searcher.model()
    assert (len(best.points), len(worst.points)) == (good, bad)
    ranked = sorted(configs, key=rate, reverse=True)
    assert best.points.tolist() == searcher._cube.encode(ranked[:good]).tolist()


def test_failures_are_bad(synthetic: Any) -> None:
    searcher = make_searcher("bohb", synthetic.problem(max_trials=None))
    large = 1e-5
    configs = tell(synthetic, searcher, range(40), 0, lambda c: None if c["learning_rate"] > large else 0.3)
    _, best, _ = searcher.model()
    sound = searcher._cube.encode([c for c in configs if c["learning_rate"] <= large])
    assert all(point in sound.tolist() for point in best.points.tolist())


def test_a_third_is_random_and_the_others_gather_where_it_was_good(synthetic: Any) -> None:
    searcher = make_searcher("bohb", synthetic.problem(max_trials=None))
    tell(synthetic, searcher, range(60), 0, rate)
    asked = [next(searcher.candidates(number)) for number in range(300)]
    reasons = Counter(figures["reason"] for _, figures in asked)
    assert stats.binomtest(reasons["random"], 300, 1 / 3).pvalue > 0.01
    rates = [math.log10(config["learning_rate"]) for config, figures in asked if figures["reason"] == "model"]
    assert abs(np.median(rates) + 4.0) < 0.3
    assert np.std(rates) < 0.8


def test_a_proposal_says_what_led_to_it(synthetic: Any) -> None:
    proposals = synthetic.simulate(synthetic.problem(max_trials=60), "bohb").proposals
    why = next(p.why for p in proposals if p.why["reason"] == "model")
    assert set(why) == {"reason", "model_budget", "good_over_bad", "bracket", "rung", "resumed_from"}
    assert why["good_over_bad"] > 1
    assert why["model_budget"] in (10, 30, 90)


HPBANDSTER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import ConfigSpace
from hpbandster.core.dispatcher import Job
from hpbandster.optimizers.config_generators.bohb import BOHB

asked = json.load(sys.stdin)
np.random.seed(1)
space = ConfigSpace.ConfigurationSpace(seed=1)
space.add(ConfigSpace.CategoricalHyperparameter("a", ["u", "v", "w"]))
space.add(ConfigSpace.UniformFloatHyperparameter("b", 1e-6, 1e-2, log=True))
space.add(ConfigSpace.UniformFloatHyperparameter("c", 0.0, 2.0))
generator = BOHB(space)
for number, (config, loss) in enumerate(zip(asked["configs"], asked["losses"])):
    job = Job((0, 0, number), config=config, budget=9.0)
    job.result = None if loss is None else {"loss": loss}
    generator.new_result(job)
sides = [generator.kde_models[9.0][side] for side in ("good", "bad")]
points = [ConfigSpace.Configuration(space, config).get_array() for config in asked["points"]]
picks = []
while len(picks) < asked["picks"]:
    config, figures = generator.get_config(9.0)
    if figures["model_based_pick"]:
        picks.append([str(config["a"]), float(config["b"]), float(config["c"])])
print(json.dumps({
    "widths": [side.bw.tolist() for side in sides],
    "densities": [[float(side.pdf(point)) for point in points] for side in sides],
    "picks": picks,
}))
"""


@pytest.mark.full
def test_model_and_proposals_are_hpbandsters(synthetic: Any) -> None:
    space = Space(
        {
            "a": Categorical(type="categorical", choices=("u", "v", "w")),
            "b": RealRange(low=1e-6, high=1e-2, log=True),
            "c": RealRange(low=0.0, high=2.0),
        }
    )
    of = synthetic.problem(space=space, recipe={"a": "u", "b": 1e-4, "c": 1.0}, max_trials=None, rungs=(9,))
    searcher = make_searcher("bohb", of)

    def score(config: Config) -> float | None:
        if config["c"] > 1.8:
            return None
        return rate({"learning_rate": config["b"]}) - abs(config["c"] - 0.5)

    configs = tell(synthetic, searcher, range(60), 0, score)  # 9 and 51: none is left out
    losses = [None if (value := score(config)) is None else -value for config in configs]
    points = of.space.sample(20, np.random.default_rng(3))
    question = {"configs": configs, "losses": losses, "points": points, "picks": 150}
    theirs = answer_of("hpbandster", HPBANDSTER, question)

    _, good, bad = searcher.model()
    cube = searcher._cube
    for side, widths, densities in zip((good, bad), theirs["widths"], theirs["densities"], strict=True):
        assert set(side.points[:, 0]) == {0, 1, 2}  # else statsmodels takes those it sees for all there are
        assert side.widths == pytest.approx(widths, rel=1e-6)
        assert side.at(cube.encode(points)) == pytest.approx(densities, rel=1e-5)

    candidates = (next(searcher.candidates(number)) for number in range(1, 500))
    ours = [config for config, figures in candidates if figures["reason"] == "model"][:150]
    assert len(ours) == 150
    for column, name in ((1, "b"), (2, "c")):
        values = [pick[column] for pick in theirs["picks"]]
        assert stats.ks_2samp([config[name] for config in ours], values).pvalue > 0.001
    counts = [
        [Counter(column)[value] + 1 for value in "uvw"]
        for column in ([config["a"] for config in ours], [pick[0] for pick in theirs["picks"]])
    ]
    assert stats.chi2_contingency(counts).pvalue > 0.001
