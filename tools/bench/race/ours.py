"""Our own methods in the race: a study in memory, its controller, and simulated machines."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcjf.controller.answer import Answer
from hpcjf.controller.ask import Asker
from hpcjf.controller.loop import Controller
from hpcjf.core.fidelity import rungs
from hpcjf.core.lifecycle import StudyState
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from race.outcome import Outcome, Recorder
from race.pool import Pool, Site
from race.problem import Problem
from race.simulation import SimulatedCluster, live

Sections = Mapping[str, Mapping[str, Any]]


NEAR = 0.05
"""How far a budget of ours may be from the problem's: a study knows the least, the full and a ratio only."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method as it is raced: what it changes in the study, and what it has to do without."""

    sections: Sections = field(default_factory=dict)
    proxy: bool = True
    checkpoints: bool = True


def _baseline(name: str) -> Method:
    """As the literature has it: without a rule that watches the training."""
    return Method({"search": {"method": name}, "stopping": {"rule": "none"}})


METHODS: Mapping[str, Method] = {
    "jfhpo": Method(),
    "jfhpo-no-proxy": Method(proxy=False),
    "jfhpo-no-checkpoints": Method(checkpoints=False),
    "jfhpo-no-stopping": Method({"stopping": {"rule": "none"}}),
    "jfhpo-paper-acquisition": Method({"search": {"acquisition": "paper"}}),
    "jfhpo-paper-stopping": Method({"stopping": {"rule": "paper"}}),
    **{name: _baseline(name) for name in ("recipe", "grid", "random", "sha", "hyperband", "asha", "bohb", "tpe")},
}


def run_ours(problem: Problem, name: str, seed: int, budget: float, site: Site) -> Outcome:
    """Race one of ``METHODS`` up to ``budget`` seconds of all workers together."""
    method = METHODS[name]
    if not method.checkpoints:
        site = replace(site, save_every=None)
    pool, study = Pool(problem, seed, site), study_of(problem, method, seed, budget, site)
    recorder, asks, ticks = Recorder(pool), Asks(study), 0.0
    random.seed(seed)  # the controller's jitter
    with run_directory() as root, controlled(root, study, pool, asks.state, asks) as (controller, cluster):
        known = 0
        for seconds in live(controller, cluster, budget):
            ticks += seconds
            if len(controller.state.incumbents) > known:
                recorder.recommend([controller.state.incumbents[-1].config])
                known = len(controller.state.incumbents)
        in_ticks = asks.cpu
        recorder.recommend([asks(0).best])
    return recorder.outcome(name, budget, asks=asks.count, ask_cpu=asks.cpu, controller_cpu=ticks - in_ticks)


def study_of(problem: Problem, method: Method, seed: int, budget: float, site: Site, **sections: Any) -> Study:
    """The study of a race. ``sections`` go over everything else."""
    low, high, gaps = problem.rungs[0], problem.rungs[-1], max(1, len(problem.rungs) - 1)
    models = problem.models if method.proxy else problem.models[-1:]
    raw: dict[str, Any] = {
        "study": {"name": "race", "seed": seed},
        "models": [{"name": m.name, "path": "simulated", "parameters": m.parameters} for m in models],
        "recipe": dict(problem.recipe),
        "space": {name: dimension.model_dump() for name, dimension in problem.space.items()},
        "budget": {"min": low, "max": high, "eta": (high / low) ** (1 / gaps) if high > low else 3},
        "search": {"parallel": site.workers, "max_trials": None, "max_job_hours": budget / 3600},
        "stopping": {} if problem.dynamics else {"rule": "none"},
        "checkpoints": {"save_every": site.save_every or high + 1},
        "cluster": {"poll_seconds": 1e-6, "missing_seconds": 0},
    }
    for name, section in [*method.sections.items(), *sections.items()]:
        if name != "stopping" or problem.dynamics:
            raw[name] = raw[name] | section
    study = Study.model_validate(raw)
    steps = rungs(study.budget.min, study.budget.max, study.budget.eta)
    if not all(abs(a - b) <= NEAR * b for a, b in zip(steps, problem.rungs, strict=True)):
        raise ValueError(f"{problem.name}: a study's budgets would be {steps}, not {problem.rungs}")
    return study


class Asks:
    """The search in this process, which knows what ``state`` knows: the controller's own."""

    def __init__(self, study: Study) -> None:
        self._asker, self.state = Asker(study), StudyState()
        self.count = 0
        self.seconds: list[float] = []
        """CPU seconds of every call."""

    @property
    def cpu(self) -> float:
        return sum(self.seconds)

    def __call__(self, count: int) -> Answer:
        began = time.process_time()
        answer = self._asker.answer(self.state, count)
        self.seconds.append(time.process_time() - began)
        self.count += len(answer.proposals)
        return answer


@contextmanager
def controlled(
    root: Path, study: Study, pool: Pool, state: StudyState, ask: Callable[[int], Answer]
) -> Iterator[tuple[Controller, SimulatedCluster]]:
    """A controller on a new run directory, and its simulated cluster."""
    layout, cluster = RunLayout(root), SimulatedCluster(pool, study.stopping)
    layout.create()
    with JournalWriter(layout.journal) as journal:
        controller = Controller(layout, study, cluster, journal, state, ask, lambda: pool.now)
        controller.emit("study", run_id="race", name=study.study.name)
        controller.emit("controller", generation=1, host="", pid=0, job_id="", executor=cluster.name)
        yield controller, cluster


@contextmanager
def run_directory() -> Iterator[Path]:
    """A folder that is gone afterwards: in memory where there is room, since a race is thousands of fsyncs."""
    memory = Path("/dev/shm")  # noqa: S108
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(prefix="hpcjf-race-", dir=memory if roomy else None) as folder:
        yield Path(folder) / "run"
