"""What to run next: search trials while their budget lasts, then the winner and the recipe on the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpcjf.controller.answer import Answer
from hpcjf.core.identity import config_id
from hpcjf.core.lifecycle import Phase, StudyState, TrialState
from hpcjf.errors import HpcjfError
from hpcjf.study import Study
from hpcjf.types import Cause, Config, Fidelity, Purpose

Emit = Callable[..., None]
_OURS = frozenset({Cause.FAILED, Cause.LAUNCH_FAILURE, Cause.LOST})
HOPELESS = 3
"""Search trials that end without a single training step before the study concludes that no job can work."""


class Planner:
    """Adds trials to the journal. ``ask`` answers with up to the wanted number of proposals."""

    def __init__(self, study: Study, ask: Callable[[int], Answer], emit: Emit) -> None:
        self._study, self._ask, self._emit = study, ask, emit
        self._asked_after: tuple[int, int] | None = None

    def plan(self, state: StudyState, free: int) -> None:
        """Add trials for ``free`` slots, and move the study to its next phase when the present one is over."""
        if state.phase is Phase.SEARCH:
            self._search(state, free)
        if state.phase is Phase.FINAL:
            self._finals(state)
        if state.phase is Phase.FINAL and all(t.cause is not None for t in state.of(Purpose.FINAL, Purpose.RECIPE)):
            self._emit("phase", phase=Phase.DONE, reason="all final runs have ended")

    def _search(self, state: StudyState, free: int) -> None:
        hopeless = broken(state.of(Purpose.SEARCH), float(state.controller.get("time", 0.0)))
        if hopeless:
            self._emit("phase", phase=Phase.STOPPED, reason=hopeless)
            return
        ended = spent(self._study, state)
        if ended is None and free > 0 and _progress(state) != self._asked_after:
            limit = self._study.search.max_trials
            count = free if limit is None else min(free, limit - len(state.of(Purpose.SEARCH)))
            self._asked_after = _progress(state)
            answer = self._answer(state, count)
            if answer is None:
                return
            self._note_best(state, answer.best)
            for proposal in answer.proposals:
                self._add(state, Purpose.SEARCH, proposal.config, proposal.fidelity, 0, dict(proposal.why))
            self._asked_after = _progress(state)
            if not answer.proposals and not state.open_trials():
                ended = "the method has nothing more to ask"
        if ended and not state.open_trials():
            self._finish(state, ended)

    def _answer(self, state: StudyState, count: int) -> Answer | None:
        """None where the search failed: it is asked again when a trial has ended, and without one the study stops."""
        try:
            return self._ask(count)
        except HpcjfError as error:
            if state.open_trials():
                self._emit("note", text=f"asked again when a trial ends: {error}")
            else:
                self._emit("phase", phase=Phase.STOPPED, reason=str(error))
            return None

    def _note_best(self, state: StudyState, best: Config) -> None:
        identity = config_id(best)
        if not state.incumbents or state.incumbents[-1].config_id != identity:
            self._emit("incumbent", config_id=identity, config=dict(best), score=best_score(state, identity))

    def _finish(self, state: StudyState, reason: str) -> None:
        answer = self._answer(state, 0)
        if answer is None:
            return
        self._note_best(state, answer.best)
        self._emit("phase", phase=Phase.FINAL, reason=reason)

    def _finals(self, state: StudyState) -> None:
        """Add the final runs that are not there yet: a controller may have died between two of them."""
        recipe, winner = self._study.recipe, state.incumbents[-1].config
        assert not isinstance(recipe, str)
        runs = {Purpose.RECIPE: (recipe, "the recipe to beat"), Purpose.FINAL: (winner, "the search's winner")}
        if config_id(winner) == config_id(recipe):
            del runs[Purpose.FINAL]
        full = Fidelity(self._study.target.name, self._study.budget.max)
        known = {(t.trial.purpose, t.trial.training_seed) for t in state.of(*runs)}
        for seed in range(1, self._study.study.training_seeds + 1):
            for purpose, (config, why) in runs.items():
                if (purpose, seed) not in known:
                    self._add(state, purpose, config, full, seed, {"reason": why})

    def _add(
        self, state: StudyState, purpose: Purpose, config: Config, where: Fidelity, seed: int, why: dict[str, Any]
    ) -> None:
        names = dict.fromkeys([*(self._study.space or ()), *sorted(config)])
        self._emit(
            "trial",
            number=state.next_number,
            config_id=config_id(config),
            config={name: config[name] for name in names if name in config},
            model=where.model,
            steps=where.steps,
            training_seed=seed,
            purpose=purpose,
            why=why,
        )


def _progress(state: StudyState) -> tuple[int, int]:
    """Trials, and those that are over: while neither changes, the search has nothing new to say."""
    return len(state.trials), len(state.over)


def spent(study: Study, state: StudyState) -> str | None:
    """Which limit of the search is reached, if any."""
    search, trials = study.search, state.of(Purpose.SEARCH)
    if search.max_trials is not None and len(trials) >= search.max_trials:
        return f"{len(trials)} trials"
    if search.max_hours is not None and state.active_seconds >= search.max_hours * 3600:
        return f"{search.max_hours:g} hours of wall time"
    if search.max_job_hours is not None and state.job_seconds() >= search.max_job_hours * 3600:
        return f"{search.max_job_hours:g} hours of job time"
    return None


def broken(trials: list[TrialState], since: float = 0.0) -> str | None:
    """Why no further trial can succeed, where the first ones all ended before their first step.

    ``since`` is the start of the present controller: after a resume a mended environment gets as many new trials.
    """
    ended = [t for t in trials if t.cause is not None]
    endings = [t.attempts[-1].ending for t in ended if t.attempts]
    dead = [e for e in endings if e is not None and e.cause in _OURS and e.step == e.start_step]
    fresh = sum(1 for ending in dead if ending.time >= since)
    if fresh >= HOPELESS and len(dead) == len(ended):
        return f"the first {len(ended)} trials failed before a training step; the last one: {dead[-1].detail}"
    return None


def best_score(state: StudyState, identity: str) -> float | None:
    """The score of a configuration at its highest fidelity so far."""
    scored = [o for t in state.of(Purpose.SEARCH) if (o := t.observation()) and o.config_id == identity]
    scored = [o for o in scored if o.score is not None]
    return scored[-1].score if scored else None
