"""scikit-optimize: its Gaussian process with the defaults of ``gp_minimize``, on the full budget.

The library proposes for several workers by a constant lie: running jobs stand in the model with the mean of the scores
that are known (``cl_mean``). It has no word for a failure: a failed job stands there with the worst score.
"""

from __future__ import annotations

import statistics
from typing import Any

from protocol import Dimension, Job, Peer, Start, serve
from skopt import Optimizer
from skopt.space import Categorical, Integer, Real

INITIAL = 10
"""Random jobs before the first model, the recipe's included."""


class GaussianProcess(Peer):
    def __init__(self, start: Start) -> None:
        self.start = start
        dimensions = [_dimension(dimension) for dimension in start.space.values()]
        self.optimizer = Optimizer(dimensions, n_initial_points=INITIAL, random_state=start.seed, model_queue_size=1)
        self.asked: list[list[Any]] = []
        self.scores: dict[int, float | None] = {}

    def ask(self) -> Job:
        point = self._point()
        self.asked.append(point)
        return Job(len(self.asked) - 1, dict(zip(self.start.space, point, strict=True)), self.start.full)

    def _point(self) -> list[Any]:
        if not self.asked:
            return [self.start.recipe[name] for name in self.start.space]
        known = [score for score in self.scores.values() if score is not None]
        if known and len(self.asked) >= INITIAL:
            lie, worst = statistics.fmean(known), min(known)
            seen = [self.scores.get(number, lie) for number in range(len(self.asked))]
            # told anew in whole, since lies cannot be taken back; this fits once
            self.optimizer.Xi, self.optimizer.yi = [], []
            self.optimizer.tell(self.asked, [-(worst if score is None else score) for score in seen])
        return self.optimizer.ask()

    def tell(self, job: Job, steps: int, score: float | None) -> None:
        self.scores[job.handle] = score


def _dimension(dimension: Dimension) -> Any:
    if dimension.choices:
        return Categorical(dimension.keys)
    prior = "log-uniform" if dimension.log else "uniform"
    if dimension.type == "integer":
        return Integer(int(dimension.low), int(dimension.high), prior=prior)
    return Real(dimension.low, dimension.high, prior=prior)


if __name__ == "__main__":
    serve("scikit-optimize", {"gp": GaussianProcess})
