"""HpBandSter: BOHB and Hyperband, the library's own optimizers without their network.

``Master.run`` gives a free worker the next run of the oldest iteration that has one, and begins another iteration where
none has: successive halving, from the bracket of the smallest budget to that of the full one and round again. So does
``ask``. A configuration that is promoted goes on as a new job. A failed job counts as an infinite loss.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from hpbandster.core import dispatcher
from hpbandster.core.master import Master
from hpbandster.optimizers import BOHB, HyperBand
from protocol import Job, Peer, Start, serve
from space import configuration_space


class _Offline(Master):  # type: ignore[misc]
    """Takes the place of ``Master`` below an optimizer: what is asked and told here, without a dispatcher."""

    def __init__(self, config_generator: Any) -> None:
        self.config_generator = config_generator
        self.iterations: list[Any] = []
        self.config: dict[str, Any] = {}

    def next_run(self) -> tuple[Any, dict[str, Any], int]:
        for index in self.active_iterations():
            if run := self.iterations[index].get_next_run():
                return run
        self.iterations.append(self.get_next_iteration(len(self.iterations)))
        return self.iterations[-1].get_next_run()

    def register(self, run: dispatcher.Job) -> None:
        self.iterations[run.id[0]].register_result(run)
        self.config_generator.new_result(run)


class _Bohb(BOHB, _Offline):  # type: ignore[misc]
    pass


class _Hyperband(HyperBand, _Offline):  # type: ignore[misc]
    pass


class HpBandSter(Peer):
    def __init__(self, optimizer: type[_Offline], start: Start) -> None:
        np.random.seed(start.seed)  # the source of all that the library draws
        # a little below the first rung, lest the count of brackets suffer from a rounded logarithm
        first, last = start.resource(start.rungs[0]) - 1e-6, start.resource(start.full)
        self.optimizer = optimizer(
            configspace=configuration_space(start), eta=start.eta, min_budget=first, max_budget=last
        )
        self.optimizer.budgets = np.array(start.rungs)
        self.optimizer.iterations.append(self.optimizer.get_next_iteration(0))
        self.optimizer.iterations[0].add_configuration(start.recipe)

    def ask(self) -> Job:
        identity, config, budget = self.optimizer.next_run()
        return Job(dispatcher.Job(identity, config=config, budget=budget), config, int(budget))

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        job.handle.result = None if score is None else {"loss": -score}
        self.optimizer.register(job.handle)


if __name__ == "__main__":
    logging.getLogger("hpbandster").setLevel(logging.ERROR)
    variants = {"bohb": _Bohb, "hyperband": _Hyperband}
    serve("hpbandster", {name: lambda start, kind=kind: HpBandSter(kind, start) for name, kind in variants.items()})
