"""The search, in a process of its own that stays: ``python -m hpcjf.controller.ask RUN`` answers questions on stdin.

scikit-optimize weighs 137 MB and costs a CPU-second to import: the controller carries neither, and a study does not pay
for it at every question. A question is one line of JSON, ``{"count": 2}``, and so is its answer. All state is rebuilt
from the journal, so nothing is lost when the process leaves, which it does after two minutes without a question.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcjf.controller.answer import Answer, encode
from hpcjf.controller.earlier import Earlier, load_earlier
from hpcjf.core.fidelity import rungs
from hpcjf.core.lifecycle import StudyState, TrialState
from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.base import ModelFidelity, Pending, SearchProblem
from hpcjf.core.space import Space
from hpcjf.store.frozen import load_frozen
from hpcjf.store.journal import JournalReader
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.types import Observation, Proposal, Purpose

IDLE_SECONDS = 120.0
"""A login node's memory is not ours: so long without a question, and the process leaves."""


def problem_of(study: Study, earlier: Earlier | None = None) -> SearchProblem:
    """The search problem of a resolved study, and of what its warm start brought."""
    assert study.space is not None
    assert not isinstance(study.recipe, str)
    return SearchProblem(
        space=Space(study.space, constraints=study.search.constraints, fixed=study.algorithm.model_dump()),
        models=tuple(ModelFidelity(model.name, model.parameters or 1) for model in study.models),
        rungs=rungs(study.budget.min, study.budget.max, study.budget.eta),
        recipe=study.recipe,
        direction=study.study.direction,
        seed=study.study.seed,
        max_trials=study.search.max_trials,
        initial=study.search.design,
        save_every=study.checkpoints.save_every,
        eta=study.budget.eta,
        given=study.search.configurations,
        earlier=earlier.observations if earlier else (),
        earlier_models=tuple(ModelFidelity(*model) for model in earlier.models.items()) if earlier else (),
        kl_ceiling=study.search.kl_ceiling,
        acquisition=study.search.acquisition,
    )


class Asker:
    """A searcher that hears of every trial once, in the order in which they ended.

    With ``search.deterministic`` the order is that of their numbers, and trial n is asked for with what trials 0 to
    n − parallel showed, no more and no less: ``why["told"]`` counts them. Where the method has nothing to ask then, it
    is told one more at a time, which a slower or faster cluster does not change either.
    """

    def __init__(self, study: Study, earlier: Earlier | None = None) -> None:
        self._study = study
        self._searcher = make_searcher(study.search.method, problem_of(study, earlier))
        self._heard = 0

    def answer(self, state: StudyState, count: int) -> Answer:
        """Up to ``count`` proposals after what ``state`` knows, which grows from call to call."""
        numbers = range(state.next_number, state.next_number + count)
        proposals = self._in_order(state, numbers) if self._study.search.deterministic else self._now(state, numbers)
        return Answer(tuple(proposals), self._searcher.best())

    def _now(self, state: StudyState, numbers: range) -> Iterator[Proposal]:
        self._tell(state.trials[number] for number in state.over[self._heard :])
        self._heard = len(state.over)
        pending = [Pending.of(known.trial) for known in state.of(Purpose.SEARCH) if known.cause is None]
        for number in numbers:
            proposal = self._searcher.ask(number, pending)
            if proposal is None:
                return
            yield proposal
            pending.append(Pending.of(proposal))

    def _in_order(self, state: StudyState, numbers: range) -> Iterator[Proposal]:
        known = {each.trial.number: each for each in state.of(Purpose.SEARCH)}
        pending = {number: Pending.of(each.trial) for number, each in known.items()}
        over = next((number for number, each in known.items() if each.cause is None), numbers.start)
        told = max((int(each.trial.why.get("told", 0)) for each in known.values()), default=0)
        if not numbers:
            self._tell_below(over, known)
        for number in numbers:
            told, proposal = max(told, self._heard, number + 1 - self._study.search.parallel), None
            while proposal is None:
                if told > over:
                    return
                self._tell_below(told, known)
                proposal = self._searcher.ask(number, [each for other, each in pending.items() if other >= told])
                told += proposal is None
            yield replace(proposal, why={**proposal.why, "told": told})
            pending[number] = Pending.of(proposal)

    def _tell_below(self, told: int, known: Mapping[int, TrialState]) -> None:
        self._tell(known[number] for number in range(self._heard, told) if number in known)
        self._heard = max(self._heard, told)

    def _tell(self, trials: Iterable[TrialState]) -> None:
        for known in trials:
            observation = self._observation(known)
            if observation is not None and known.trial.purpose is Purpose.SEARCH:
                self._searcher.tell(observation)

    def _observation(self, known: TrialState) -> Observation | None:
        if not self._study.search.deterministic:
            return known.observation()
        model = self._study.model(known.trial.fidelity.model)
        return known.in_work((model.parameters or 1) / (self._study.target.parameters or 1))


def _questions(idle_seconds: float) -> Iterator[dict[str, Any]]:
    """Questions until the controller closes stdin, dies, or asks nothing for so long."""
    while select.select([sys.stdin], [], [], idle_seconds)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        yield json.loads(line)


def main(arguments: Sequence[str]) -> None:
    layout = RunLayout(Path(arguments[0]))
    study = load_frozen(layout)
    asker, journal, state = Asker(study, load_earlier(layout, study)), JournalReader(layout.journal), StudyState()
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    for question in _questions(IDLE_SECONDS):
        for event in journal.read():
            state.apply(event)
        print(json.dumps(encode(asker.answer(state, question["count"]))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
