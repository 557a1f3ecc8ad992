"""What happened in a run so far, for readers. Light: ``hpcjf status`` imports no more of the controller than this."""

from __future__ import annotations

from hpcjf.core.lifecycle import StudyState, replay
from hpcjf.store.journal import read_journal
from hpcjf.store.layout import RunLayout


def state_of(layout: RunLayout) -> tuple[StudyState, list[str]]:
    """What the journal says, and its problems."""
    events, problems = read_journal(layout.journal)
    return replay(events), problems
