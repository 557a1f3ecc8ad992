"""Random search, and what every search on the target alone recommends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import make_searcher
from hpcjf.core.space import Space
from hpcjf.study import Categorical
from hpcjf.types import Cause, Fidelity


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_best_at_full_budget_is_recommended(direction: str, synthetic: Any) -> None:
    searcher = make_searcher("random", synthetic.problem(direction=direction))
    asked = []
    for number, score in enumerate((0.3, 0.5, 0.4)):
        asked.append(searcher.ask(number, []))
        searcher.tell(synthetic.observe(number, asked[-1], score))
    assert searcher.best() == asked[1 if direction == "maximize" else 0].config


@pytest.mark.parametrize(("reached", "score"), [(20, 0.9), (89, 0.9)])
def test_a_stopped_trial_loses_to_one_at_full_budget(reached: int, score: float, synthetic: Any) -> None:
    searcher = make_searcher("random", synthetic.problem())
    whole, short = searcher.ask(0, []), searcher.ask(1, [])
    searcher.tell(synthetic.observe(0, whole, 0.3))
    stopped = replace(short, fidelity=Fidelity("m", reached))
    searcher.tell(synthetic.observe(1, stopped, score, Cause.STOPPED_KL))
    assert searcher.best() == whole.config


def test_of_two_equal_scores_the_earlier_is_recommended(synthetic: Any) -> None:
    searcher = make_searcher("random", synthetic.problem())
    first, second = searcher.ask(1, []), searcher.ask(2, [synthetic.pend(searcher.ask(1, []))])
    searcher.tell(synthetic.observe(2, second, 0.5))
    searcher.tell(synthetic.observe(1, first, 0.5))
    assert searcher.best() == first.config


def test_one_above_the_ceiling_of_the_kl_loses_to_all_below(synthetic: Any) -> None:
    searcher = make_searcher("random", synthetic.problem(kl_ceiling=0.2))
    asked = []
    for number, (score, kl) in enumerate([(0.3, 0.1), (0.5, 0.2), (0.9, 0.21), (0.4, None)]):
        asked.append(searcher.ask(number, []))
        searcher.tell(replace(synthetic.observe(number, asked[-1], score), kl=kl))
    assert searcher.best() == asked[1].config


def test_draws_depend_on_seed_and_number_alone(synthetic: Any) -> None:
    def drawn(seed: int, number: int) -> str:
        searcher = make_searcher("random", synthetic.problem(seed=seed))
        searcher.tell(synthetic.observe(0, searcher.ask(0, [])))
        return config_id(searcher.ask(number, []).config)

    assert drawn(1, 3) == drawn(1, 3)
    assert len({drawn(1, 3), drawn(1, 4), drawn(2, 3)}) == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_space_of_few_points_is_searched_to_its_end(seed: int, synthetic: Any) -> None:
    few = Space({"lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine", "linear"))})
    of = synthetic.problem(space=few, recipe={"lr_scheduler": "constant"}, max_trials=None, seed=seed)
    searcher, pending = make_searcher("random", of), []
    while (proposal := searcher.ask(len(pending), pending)) is not None:
        pending.append(synthetic.pend(proposal))
    assert {p.config["lr_scheduler"] for p in pending} == {"constant", "cosine", "linear"}
