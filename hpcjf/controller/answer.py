"""The question to the search and its answer, as they pass between the controller and ``hpcjf.controller.ask``."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hpcjf.errors import HpcjfError
from hpcjf.types import Config, Fidelity, Proposal

_MODULE = "hpcjf.controller.ask"
_SECONDS = 600.0
"""The longest that a search may take over one answer."""


@dataclass(frozen=True)
class Answer:
    """Proposals, fewer than asked for where the method has no more, and the configuration it would return now."""

    proposals: tuple[Proposal, ...]
    best: Config


class AskProcess:
    """``hpcjf.controller.ask`` on the run directory ``root``: started by a question, and again once it has left."""

    def __init__(self, root: Path) -> None:
        self._command = [sys.executable, "-m", _MODULE, str(root)]
        self._child: _Child | None = None

    def __call__(self, count: int) -> Answer:
        """The answer. Raises HpcjfError with the process's last line where it died over the question, twice."""
        try:
            line = self._exchange(count) or self._exchange(count)
            said = "" if line or self._child is None else self._child.last_words()
        except OSError as error:  # fork refused on a full login node, or no answer in time
            line, said = b"", str(error)
        if not line:
            raise HpcjfError(f"the search failed: {said}", where=f"python -m {_MODULE}")
        return _decode(json.loads(line))

    def close(self) -> None:
        """End the process, which keeps nothing that is not in the journal."""
        if self._child is not None:
            self._child.end()

    def _exchange(self, count: int) -> bytes:
        if self._child is None or self._child.over:
            self._child = _Child(self._command)
        return self._child.exchange(b'{"count": %d}\n' % count)


class _Child:
    """One process that answers a line with a line. It does not outlive us, since its stdin closes then."""

    def __init__(self, command: Sequence[str]) -> None:
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # a session of its own: Ctrl-C is for the controller, which may go on asking
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, start_new_session=True
        )

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def exchange(self, question: bytes) -> bytes:
        """The line that answers, empty where the process died over it. Raises TimeoutError; it is ended then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(question)
            self._process.stdin.flush()
        answers, answer, end = self._process.stdout.fileno(), b"", time.monotonic() + _SECONDS
        while not answer.endswith(b"\n"):
            if not select.select([answers], [], [], max(0.0, end - time.monotonic()))[0]:
                self.end()
                raise TimeoutError(f"no answer in {_SECONDS:.0f} s")
            piece = os.read(answers, 1 << 16)
            if not piece:
                self.end()
                return b""
            answer += piece
        return answer

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

    def last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with exit code {self._process.returncode}"


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
