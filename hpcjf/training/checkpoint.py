"""Training state beside the weights: optimiser, counters and random streams, readable without unpickling code."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from hpcjf.errors import TrainingError

_FILE = "state.pt"


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and primitives) with the random streams of torch and Python to ``folder``/state.pt."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    rng = {"torch": torch.get_rng_state(), "cuda": cuda, "python": random.getstate()}
    torch.save({**state, "rng": rng}, folder / _FILE)


def read_state(folder: Path) -> dict[str, Any]:
    """State that :func:`write_state` wrote. Raises TrainingError where it is missing, damaged or holds code."""
    path = folder / _FILE
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError("not a table")
    except Exception as error:  # torch.load raises many kinds for damaged files
        raise TrainingError(f"training state cannot be read ({type(error).__name__})", where=str(path)) from error
    return state


def restore_streams(state: dict[str, Any]) -> None:
    """Set the random streams of torch and Python. Raises TrainingError: a run that goes on without is another run."""
    try:
        rng = state["rng"]
        torch.set_rng_state(rng["torch"])
        if rng["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(rng["cuda"])
        random.setstate(rng["python"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(f"random streams cannot be restored ({type(error).__name__}: {error})") from error
