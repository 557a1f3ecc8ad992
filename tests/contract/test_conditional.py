"""Every method in a space with conditions and constraints: no inactive value, no forbidden configuration, no twin."""

from __future__ import annotations

from typing import Any

import pytest

from hpcjf.analysis.forecast import Pace, forecast
from hpcjf.core.identity import config_id
from hpcjf.core.searchers import ModelFidelity, SearchProblem, make_searcher
from hpcjf.core.space import Space
from hpcjf.study import Categorical, IntegerRange, RealRange, SearchSection
from hpcjf.types import Config

SPACE = Space(
    {
        "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
        "learning_rate": RealRange(low=1e-6, high=1e-2, log=True),
        "clip_range": RealRange(low=0.1, high=0.4, when={"lr_scheduler": ("cosine",)}),
        "rollouts": IntegerRange(type="integer", low=2, high=16),
    },
    constraints=["rollouts * prompts_per_step <= 128", "clip_range < 0.3 or rollouts < 4"],
    fixed={"prompts_per_step": 16, "clip_range": 0.2},
)
RECIPE: Config = {"lr_scheduler": "constant", "learning_rate": 1e-4, "rollouts": 5}


@pytest.mark.parametrize("method", ["jfhpo", "grid", "random", "sha", "hyperband", "asha", "bohb", "tpe"])
def test_proposals_are_canonical_and_allowed(method: Any) -> None:
    problem = SearchProblem(
        space=SPACE,
        models=(ModelFidelity("s", 100), ModelFidelity("m", 1000)),
        rungs=(10, 30, 90),
        recipe=RECIPE,
        max_trials=24,
        initial=6,
        given=({"lr_scheduler": "cosine"},),
    )
    seen: list[Config] = []

    class Watched:
        def __init__(self) -> None:
            self.inner = make_searcher(method, problem)
            self.tell, self.best, self.describe = self.inner.tell, self.inner.best, self.inner.describe

        def ask(self, *arguments: Any) -> Any:
            proposal = self.inner.ask(*arguments)
            if proposal is not None:
                seen.append(proposal.config)
            return proposal

    pace = Pace({"s": 1.0, "m": 5.0}, {"s": 2.0, "m": 2.0}, {}, seconds=True)
    found = forecast(problem, Watched(), SearchSection(max_trials=24, parallel=3), pace)
    assert len(found.trials) == 24 or method == "grid", "conditions and constraints take points from a grid"
    assert all(SPACE.contains(config) and SPACE.canonical(config) == config for config in seen)
    assert {"clip_range" in config for config in seen} == {True, False}
    assert {config_id(config) for config in seen} >= {config_id(RECIPE)}
    assert {"lr_scheduler": "cosine", "learning_rate": 1e-4, "clip_range": 0.2, "rollouts": 5} in seen
