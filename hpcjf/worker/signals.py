"""Signals are hints: the handler sets a flag, the save happens at the next step boundary."""

from __future__ import annotations

import signal
from types import FrameType


class Interruption:
    """Set by SIGUSR2 (Slurm's warning before a limit or a preemption) and SIGTERM. Replaces submitit's handlers."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def install(self) -> None:
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
