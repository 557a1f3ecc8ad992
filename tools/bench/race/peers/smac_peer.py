"""SMAC: its multi-fidelity facade, Hyperband over a random forest, by ask and tell.

The recipe heads the initial design, whose size is the facade's own for 100 trials. A failed trial is told as crashed
with the worst cost so far, since the forest cannot take an infinite one; before the first score it has to wait.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from ConfigSpace import Configuration
from protocol import Job, Peer, Start, serve
from smac import MultiFidelityFacade, Scenario
from smac.initial_design import RandomInitialDesign
from smac.runhistory import StatusType, TrialInfo, TrialValue
from space import configuration_space


class _RecipeFirst(RandomInitialDesign):  # type: ignore[misc]
    recipe: Configuration

    def _select_configurations(self) -> list[Configuration]:
        return [self.recipe, *super()._select_configurations()]


class MultiFidelity(Peer):
    def __init__(self, start: Start) -> None:
        self.start = start
        with tempfile.TemporaryDirectory(prefix="hpcjf-smac-") as files:  # written once, and never read
            self.smac = _facade(start, Path(files))
        self.worst: float | None = None
        self.held: list[TrialInfo] = []

    def ask(self) -> Job | None:
        try:
            trial = self.smac.ask()
        except StopIteration:
            return None
        rung = round(math.log(trial.budget, self.start.eta))
        return Job(trial, trial.config, self.start.rungs[rung])

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        if score is None:
            self.held.append(job.handle)
        else:
            self.worst = max(-score, -score if self.worst is None else self.worst)
            self.smac.tell(job.handle, TrialValue(cost=-score), save=False)
        while self.held and self.worst is not None:
            self.smac.tell(self.held.pop(0), TrialValue(cost=self.worst, status=StatusType.CRASHED), save=False)


def _facade(start: Start, files: Path) -> MultiFidelityFacade:
    space = configuration_space(start)
    scenario = Scenario(
        space,
        deterministic=True,
        output_directory=files,
        # a little below the first rung, lest the count of brackets suffer from a rounded logarithm
        min_budget=start.resource(start.rungs[0]) - 1e-6,
        max_budget=start.resource(start.full),
        seed=start.seed,
    )
    design = _RecipeFirst(scenario)
    design.recipe = Configuration(space, values=start.recipe)
    intensifier = MultiFidelityFacade.get_intensifier(scenario, eta=start.eta)
    return MultiFidelityFacade(scenario, _nothing, initial_design=design, intensifier=intensifier, logging_level=40)


def _nothing(config: Configuration, seed: int, budget: float) -> float:
    """The facade wants a target function, which ask and tell never call."""
    raise NotImplementedError


if __name__ == "__main__":
    serve("smac", {"multi-fidelity": MultiFidelity})
