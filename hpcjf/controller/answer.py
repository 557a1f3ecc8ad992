"""The question to the search and its answer, as they pass between the controller and ``hpcjf.controller.ask``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcjf.errors import HpcjfError
from hpcjf.types import Config, Fidelity, Proposal

_SECONDS = 600.0
"""The longest that a search may take over one answer."""


@dataclass(frozen=True)
class Answer:
    """Proposals, fewer than asked for where the method has no more, and the configuration it would return now."""

    proposals: tuple[Proposal, ...]
    best: Config


def ask_process(root: Path, count: int) -> Answer:
    """``hpcjf.controller.ask.propose`` in a child process. Raises HpcjfError with the child's last line."""
    command = [sys.executable, "-m", "hpcjf.controller.ask", str(root), str(count)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:  # fork refused on a full login node, or a stuck disk
        raise HpcjfError(f"the search failed: {error}", where="python -m hpcjf.controller.ask") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise HpcjfError(f"the search failed: {last}", where="python -m hpcjf.controller.ask")
    return _decode(json.loads(done.stdout))


def encode(answer: Answer) -> dict[str, Any]:
    return {
        "proposals": [
            {"config": dict(p.config), "model": p.fidelity.model, "steps": p.fidelity.steps, "why": dict(p.why)}
            for p in answer.proposals
        ],
        "best": dict(answer.best),
    }


def _decode(raw: dict[str, Any]) -> Answer:
    proposals = (Proposal(p["config"], Fidelity(p["model"], p["steps"]), p["why"]) for p in raw["proposals"])
    return Answer(tuple(proposals), raw["best"])
