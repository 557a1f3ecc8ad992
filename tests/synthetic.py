"""A synthetic study: learning curves of three models whose best learning rate falls with their size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpcjf.core.identity import config_id
from hpcjf.core.searchers import ModelFidelity, Pending, Searcher, SearchProblem, make_searcher
from hpcjf.core.space import Space
from hpcjf.study import Categorical, IntegerRange, RealRange
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal

SIZES = {"xs": 101_888, "s": 445_056, "m": 1_068_800}
BEST_LOG_RATE = {"xs": -3.5, "s": -4.0, "m": -4.4}
STARTUP_SECONDS = 10.0
RECIPE: Config = {"learning_rate": 3e-6, "lr_scheduler": "constant", "kl_coef": 0.001, "rollouts": 5}


def space() -> Space:
    return Space(
        {
            "learning_rate": RealRange(low=1e-6, high=1e-2, log=True),
            "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
            "kl_coef": RealRange(low=1e-4, high=1e-1, log=True),
            "rollouts": IntegerRange(type="integer", low=4, high=12),
        }
    )


def true_score(config: Config, fidelity: Fidelity) -> float:
    """A saturating learning curve from 0.25; too large a learning rate destroys the model instead."""
    off = np.log10(float(config["learning_rate"])) - BEST_LOG_RATE[fidelity.model]
    quality = np.exp(-0.5 * (off / (1.0 if off < 0 else 0.6)) ** 2)
    quality *= 1 - 0.1 * abs(np.log10(float(config["kl_coef"])) + 2.5)
    learnt = 1 - np.exp(-fidelity.steps / 35)
    return float(max(0.0, 0.25 + 0.35 * quality * learnt - 0.25 * min(1.0, max(0.0, off - 0.6)) * learnt))


def seconds_per_step(config: Config, model: str) -> float:
    return float((SIZES[model] / SIZES["m"]) ** 0.7 * int(config.get("rollouts", 8)) / 8)


@dataclass
class Simulation:
    """A study that ran: proposals in the order they were asked, observations in the order they were told."""

    searcher: Searcher
    proposals: list[Proposal] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    @property
    def recommended(self) -> float:
        return true_score(self.searcher.best(), Fidelity("m", 90))


def problem(**changes: object) -> SearchProblem:
    defaults: dict[str, object] = {
        "space": space(),
        "models": tuple(ModelFidelity(name, SIZES[name]) for name in ("xs", "m")),
        "rungs": (10, 30, 90),
        "recipe": RECIPE,
        "seed": 0,
        "max_trials": 16,
        "initial": 4,
    }
    return SearchProblem(**(defaults | changes))  # type: ignore[arg-type]


def pend(proposal: Proposal) -> Pending:
    return Pending.of(proposal)


def observe(trial: int, proposal: Proposal, score: float | None = 0.3, cause: Cause = Cause.COMPLETED) -> Observation:
    seconds = proposal.fidelity.steps * seconds_per_step(proposal.config, proposal.fidelity.model)
    identity, start = config_id(proposal.config), int(proposal.why.get("resumed_from", 0))
    return Observation(
        trial=trial,
        config_id=identity,
        config=proposal.config,
        fidelity=proposal.fidelity,
        score=score,
        cause=cause,
        start_step=start,
        seconds=seconds,
        startup_seconds=STARTUP_SECONDS,
        why=proposal.why,
    )


def simulate(of: SearchProblem, method: str = "jfhpo", parallel: int = 4) -> Simulation:
    """Asynchronous: a trial that ends frees a place at once. Noise of 0.01 on each score."""
    noise, study = np.random.default_rng([of.seed, 7]), Simulation(make_searcher(method, of))  # type: ignore[arg-type]
    sign = 1.0 if of.direction == "maximize" else -1.0
    running: list[tuple[float, int, Proposal]] = []
    now = 0.0
    while True:
        while len(running) < parallel:
            number = len(study.proposals)
            proposal = study.searcher.ask(number, [pend(p) for _, _, p in running])
            if proposal is None:
                break
            study.proposals.append(proposal)
            steps = proposal.fidelity.steps - int(proposal.why.get("resumed_from", 0))
            seconds = steps * seconds_per_step(proposal.config, proposal.fidelity.model)
            running.append((now + STARTUP_SECONDS + seconds, number, proposal))
        if not running:
            return study
        running.sort(key=lambda entry: entry[:2])
        now, number, proposal = running.pop(0)
        score = true_score(proposal.config, proposal.fidelity) + 0.01 * noise.standard_normal()
        study.observations.append(observe(number, proposal, sign * score))
        study.searcher.tell(study.observations[-1])
