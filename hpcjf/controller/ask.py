"""The search, in a process of its own: ``python -m hpcjf.controller.ask RUN COUNT`` prints proposals as JSON.

scikit-optimize weighs 137 MB; a login node's controller does not carry it between two questions, and limits on the
CPU time of one process count from zero with each. State is rebuilt from the journal, so nothing is kept here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcjf.controller.answer import Answer, encode
from hpcjf.core.fidelity import rungs
from hpcjf.core.identity import config_id
from hpcjf.core.lifecycle import StudyState, replay
from hpcjf.core.searchers import make_searcher
from hpcjf.core.searchers.base import ModelFidelity, Pending, Searcher, SearchProblem
from hpcjf.core.space import Space
from hpcjf.store.frozen import load_frozen
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.types import Proposal, Purpose


def problem_of(study: Study) -> SearchProblem:
    """The search problem of a resolved study."""
    assert study.space is not None
    assert not isinstance(study.recipe, str)
    return SearchProblem(
        space=Space(study.space),
        models=tuple(ModelFidelity(model.name, model.parameters or 1) for model in study.models),
        rungs=rungs(study.budget.min, study.budget.max, study.budget.eta),
        recipe=study.recipe,
        direction=study.study.direction,
        seed=study.study.seed,
        max_trials=study.search.max_trials,
        initial=study.search.initial,
        save_every=study.checkpoints.save_every,
    )


def propose(study: Study, state: StudyState, count: int) -> Answer:
    """Up to ``count`` proposals after everything that ``state`` knows."""
    searcher: Searcher = make_searcher(study.search.method, problem_of(study))
    pending: list[Pending] = []
    for known in state.of(Purpose.SEARCH):
        observation = known.observation()
        if observation is not None:
            searcher.tell(observation)
        elif known.cause is None:
            pending.append(Pending(known.trial.config_id, known.trial.config, known.trial.fidelity))
    proposals: list[Proposal] = []
    first = state.next_number
    for number in range(first, first + count):
        proposal = searcher.ask(number, pending)
        if proposal is None:
            break
        proposals.append(proposal)
        pending.append(Pending(config_id(proposal.config), proposal.config, proposal.fidelity))
    return Answer(tuple(proposals), searcher.best())


def main(arguments: Sequence[str]) -> None:
    layout = RunLayout(Path(arguments[0]))
    events, _ = read_journal(layout.journal)
    print(json.dumps(encode(propose(load_frozen(layout), replay(events), int(arguments[1])))))


if __name__ == "__main__":
    main(sys.argv[1:])
