"""``hpcjf plan``: what a study would run and cost, and which of its dimensions are dead. No job, no model, no data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hpcjf.analysis.dead import dead_dimensions
from hpcjf.analysis.forecast import Forecast, Pace, forecast
from hpcjf.analysis.words import duration, search_words
from hpcjf.config import read_study
from hpcjf.controller.ask import problem_of
from hpcjf.controller.history import state_of
from hpcjf.core.feasible import shares_left
from hpcjf.core.searchers import make_searcher
from hpcjf.errors import UserError
from hpcjf.resolve import resolve_sizes
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.types import Fidelity

EXPONENT = 0.7
"""A step of a model that was never timed costs as its parameters to this power."""


@dataclass(frozen=True, slots=True)
class Row:
    """Trials at one fidelity in one part of the study. ``cost`` is in the pace's unit."""

    part: str
    at: Fidelity
    trials: int
    jobs: int
    steps: int
    cost: float


def show_plan(file: Path, given: Sequence[str], run: Path | None) -> None:
    """Print the plan; ``given`` are MODEL=SECONDS, ``run`` is a run directory that timed models. Raises UserError."""
    study, lines = read_study(file)
    study = resolve_sizes(study, file, lines)
    pace, sources = _pace(study, given, run)
    problem = problem_of(study)
    found = forecast(problem, make_searcher(study.search.method, problem), study.search, pace)
    for line in _plan(study, problem.rungs, found, pace, sources):
        print(line)


def _plan(study: Study, rungs: Sequence[int], found: Forecast, pace: Pace, sources: Sequence[str]) -> Iterator[str]:
    yield f"plan of {study.study.name}: {search_words(study.search)}"
    yield f"models: {' → '.join(f'{model.name} ({model.parameters:,} parameters)' for model in study.models)}"
    yield f"budgets: {' → '.join(map(str, rungs))} steps; what ends the search: {found.limit}"
    yield ""
    yield from _table(study, list(_rows(study, found, pace)), pace)
    yield ""
    finals, parallel = _finals(study), study.search.parallel
    yield f"jobs in flight: at most {found.in_flight} in the search, {min(parallel, finals)} in the final comparison"
    if pace.seconds:
        last = math.ceil(finals / parallel) * pace.cost(study.target.name, study.budget.max)
        yield f"wall time: {duration(found.elapsed)} and {duration(last)}, if no job waits in the queue"
    dead = dead_dimensions(study)
    yield "dead dimensions:" if dead else "dead dimensions: none is known"
    yield from (f"  {name}: {reason}" for name, reason in dead.items())
    yield "this assumes:"
    yield from (f"  {line}" for line in [*sources, *_assumptions(study, pace)])


def _finals(study: Study) -> int:
    return study.study.training_seeds * (1 if study.search.method == "recipe" else 2)


def _rows(study: Study, found: Forecast, pace: Pace) -> Iterator[Row]:
    budgets = sorted({trial.fidelity.steps for trial in found.trials})
    for at in (Fidelity(model.name, budget) for model in study.models for budget in budgets):
        steps = [trial.steps for trial in found.trials if trial.fidelity == at]
        if steps:
            yield _row("search", at, steps, pace)
    full = Fidelity(study.target.name, study.budget.max)
    yield _row("final", full, [full.steps] * _finals(study), pace)


def _row(part: str, at: Fidelity, steps: Sequence[int], pace: Pace) -> Row:
    jobs, costs = [pace.jobs(at.model, each) for each in steps], [pace.cost(at.model, each) for each in steps]
    return Row(part, at, len(steps), sum(jobs), sum(steps), sum(costs))


def _table(study: Study, rows: Sequence[Row], pace: Pace) -> Iterator[str]:
    """Lines of equal columns: names to the left, numbers to the right."""
    asked = {model.name: model.resources.over(study.cluster) for model in study.models}
    gpus = {name: (resources.gpus or 0) * (resources.nodes or 1) for name, resources in asked.items()}
    cells = [["part", "model", "budget", *_COUNTS, "job hours" if pace.seconds else "target trainings"]]
    cells += [[row.part, row.at.model, str(row.at.steps), *_sums([row], pace)] for row in rows]
    cells += [["all", "", "", *_sums(rows, pace)]]
    if pace.seconds and any(gpus.values()):
        hours = [row.cost / 3600 * gpus[row.at.model] for row in rows]
        for line, text in zip(cells, ["GPU-hours", *(f"{each:.2f}" for each in (*hours, sum(hours)))], strict=True):
            line.append(text)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        pairs = list(zip(line, widths, strict=True))
        yield "  ".join([text.ljust(width) for text, width in pairs[:2]] + [t.rjust(width) for t, width in pairs[2:]])


_COUNTS = ("trials", "jobs", "steps")


def _sums(rows: Sequence[Row], pace: Pace) -> list[str]:
    cost = sum(row.cost for row in rows) / (3600 if pace.seconds else 1)
    return [*(str(sum(getattr(row, name) for row in rows)) for name in _COUNTS), f"{cost:.2f}"]


def _pace(study: Study, given: Sequence[str], run: Path | None) -> tuple[Pace, list[str]]:
    """What steps cost, and where that comes from."""
    timed, startups = _timed(study, run) if run else ({}, {})
    told = dict(_told(study, text) for text in given)
    known = timed | told
    sizes = {model.name: model.parameters or 1 for model in study.models}
    full = study.budget.max
    step = {name: known.get(name) or _scaled(name, known, sizes, full) for name in sizes}
    startup = {name: startups.get(name, median(startups.values() or [0.0])) for name in sizes}
    minutes = {model.name: model.resources.over(study.cluster).time_minutes for model in study.models}
    limits = {name: 60.0 * limit for name, limit in minutes.items() if limit is not None}
    pace = Pace(step, startup, limits, seconds=bool(known))
    if not known:
        how = "--seconds-per-step MODEL=SECONDS or --from RUN gives hours"
        return pace, [f"one unit of cost is a full training of the target; a step costs parameters^{EXPONENT}; {how}"]
    origins = {name: "given" if name in told else f"as in {run}" if name in timed else "scaled" for name in sizes}
    steps = ", ".join(f"{name} {step[name]:.3g} ({origins[name]})" for name in sizes)
    waits = ", ".join(f"{name} {startup[name]:.3g}" for name in sizes) if startups else "unknown, left out"
    scaled = f"; scaled by parameters^{EXPONENT}" if "scaled" in origins.values() else ""
    return pace, [f"seconds per step: {steps}{scaled}", f"seconds of start-up and shut-down: {waits}"]


def _scaled(name: str, known: Mapping[str, float], sizes: Mapping[str, int], full: int) -> float:
    """From the known model that is nearest in size; without one, in full trainings of the target."""
    if not known:
        return float((sizes[name] / list(sizes.values())[-1]) ** EXPONENT) / full
    near = min(known, key=lambda other: abs(math.log(sizes[name] / sizes[other])))
    return known[near] * float((sizes[name] / sizes[near]) ** EXPONENT)


def _told(study: Study, text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    names = [model.name for model in study.models]
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if name not in names or not 0 < seconds < math.inf:
        fix = f"write MODEL=SECONDS with a model of {', '.join(names)}, e.g. {names[-1]}=2.5"
        raise UserError(f"{text!r} says no model's seconds", where="--seconds-per-step", fix=fix)
    return name, seconds


def _timed(study: Study, run: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a step and of a start-up, by model, as the jobs of ``run`` had them."""
    state, _ = state_of(RunLayout(run))
    step, startup = {}, {}
    for model in study.models:
        trials = [trial for trial in state.trials.values() if trial.trial.fidelity.model == model.name]
        endings = [attempt.ending for trial in trials for attempt in trial.attempts if attempt.ending]
        endings = [ending for ending in endings if ending.step > ending.start_step and ending.seconds > 0]
        if endings:
            done = sum(ending.step - ending.start_step for ending in endings)
            step[model.name] = sum(ending.seconds for ending in endings) / done
            startup[model.name] = median(ending.startup_seconds for ending in endings)
    if not step:
        names = ", ".join(model.name for model in study.models)
        raise UserError(
            "no job there trained a model of this study", where=str(run), fix=f"name a run with one of {names}"
        )
    return step, startup


def _assumptions(study: Study, pace: Pace) -> Iterator[str]:
    yield "scores that fall with the distance from the middle of the space, alike on all models"
    yield "no trial is stopped early, fails or is preempted; a step costs the same for every configuration"
    search = study.search
    if not pace.seconds and (search.max_hours or search.max_job_hours):
        yield "max_hours and max_job_hours cannot be reached: no seconds per step are known"
    if search.warm_start:
        yield "search.warm_start is left out"
    if search.constraints:
        left = shares_left(study.space or {}, search.constraints, study.algorithm.model_dump())[-1]
        yield f"search.constraints leave {100 * left:.3g} % of the space"
