"""What ``search.warm_start`` brings: the search trials of another run, read once and frozen into this one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hpcjf.core.lifecycle import replay
from hpcjf.errors import StoreError, StudyError
from hpcjf.store.frozen import load_frozen
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import Message
from hpcjf.study import Study
from hpcjf.types import Fidelity, Observation, Purpose

_KEY = "search.warm_start"


class Earlier(Message):
    """Trials of another run in the order of their ends, on models of this study or of ``models`` (name: parameters).

    What the cluster did to a trial says nothing here: those are left out.
    """

    run_id: str
    models: dict[str, int]
    observations: tuple[Observation, ...]


def freeze_earlier(layout: RunLayout, study: Study) -> None:
    """Before the study itself: from then on the other run may change or go."""
    earlier = read_earlier(study, layout.root)
    if earlier is not None:
        earlier.write(layout.earlier)


def load_earlier(layout: RunLayout, study: Study) -> Earlier | None:
    """What was frozen, None for a study without a warm start. Raises StoreError."""
    return None if study.search.warm_start is None else Earlier.read(layout.earlier)


def read_earlier(study: Study, root: Path) -> Earlier | None:
    """The trials of the run that a resolved study names, if it does; ``root`` is its own run directory.

    Raises StudyError where that run cannot be read, is this one, or searched another space.
    """
    if study.search.warm_start is None:
        return None
    layout = RunLayout(Path(study.search.warm_start))
    if os.path.realpath(layout.root) == os.path.realpath(root):
        fix = "name an earlier run, or another --run-dir for this one"
        raise StudyError("a run cannot be its own warm start", where=_KEY, fix=fix)
    try:
        layout.check_owner()
        other = load_frozen(layout)
        events, _ = read_journal(layout.journal)
    except StoreError as error:
        fix = error.fix or "name the run directory of an earlier study"
        raise StudyError(f"{error.where}: {error.what}", where=_KEY, fix=fix) from error
    _check_alike(study, other, layout.root)
    state, names = replay(events), _names_here(study, other)
    seen = []
    for number in state.over:
        known = state.trials[number]
        size = (other.model(known.trial.fidelity.model).parameters or 1) / (study.target.parameters or 1)
        observation = known.in_work(size) if study.search.deterministic else known.observation()
        if known.trial.purpose is Purpose.SEARCH and observation and not observation.cause.infrastructure:
            seen.append(_renamed(observation, names))
    used = {observation.fidelity.model for observation in seen}
    ours = {model.name for model in study.models}
    foreign = {names[m.name]: m.parameters or 1 for m in other.models if names[m.name] in used - ours}
    return Earlier(run_id=state.run_id, models=foreign, observations=tuple(seen))


def _check_alike(study: Study, other: Study, root: Path) -> None:
    ours, theirs = study.space or {}, other.space or {}
    differing = [f"space.{name}" for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if study.study.direction != other.study.direction:
        differing.append("study.direction")
    if differing:
        what = f"{root} searched otherwise: {', '.join(differing)} {'differ' if differing[1:] else 'differs'}"
        raise StudyError(what, where=_KEY, fix="make them equal, or start without it")


def _names_here(study: Study, other: Study) -> dict[str, str]:
    """What each of the other study's models is called here: its name, unless ours of that name has another size."""
    ours = {model.name: model.parameters for model in study.models}
    taken, names = {*ours, *(model.name for model in other.models)}, {}
    for model in other.models:
        names[model.name] = model.name
        if ours.get(model.name, model.parameters) != model.parameters:
            while names[model.name] in taken:
                names[model.name] += "-earlier"
            taken.add(names[model.name])
    return names


def _renamed(seen: Observation, names: dict[str, str]) -> Observation:
    return replace(seen, fidelity=Fidelity(names[seen.fidelity.model], seen.fidelity.steps))
