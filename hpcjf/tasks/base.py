"""What a task is made of: rows with references, and the three parts of its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt. A response may agree with any of ``references``; ``key`` is ``prompt_key(prompt)``."""

    prompt: str
    references: tuple[str, ...]
    task: str
    key: str

    @classmethod
    def of(cls, prompt: str, references: tuple[str, ...], task: str) -> Self:
        return cls(prompt, references, task, prompt_key(prompt))


@dataclass(frozen=True, slots=True)
class TaskData:
    """Rows of the study. ``fingerprint`` covers every row in order; ``notes`` say what was changed, with counts."""

    train: tuple[Row, ...]
    validation: tuple[Row, ...]
    test: tuple[Row, ...]
    fingerprint: str
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, train: Iterable[Row], validation: Iterable[Row], test: Iterable[Row], notes: Iterable[str] = ()
    ) -> Self:
        parts = (tuple(train), tuple(validation), tuple(test))
        return cls(*parts, fingerprint=_fingerprint(parts), notes=tuple(notes))


class Embedder(Protocol):
    """Sentence embeddings; injected, since the model behind it needs torch."""

    def embed(self, texts: Sequence[str]) -> Iterable[Iterable[float]]:
        """Vectors ``[n, d]`` of ``n`` texts, of any length; an array will do."""
        ...


def prompt_key(prompt: str) -> str:
    """Hash of the prompt with white space folded: equal keys mean the same question."""
    return digest(" ".join(prompt.split()))


def digest(text: str) -> str:
    """32 hex digits; the same on every machine, and for text with lone surrogates too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _fingerprint(parts: Sequence[Sequence[Row]]) -> str:
    rows = [[[row.task, row.prompt, row.references] for row in part] for part in parts]
    return digest(json.dumps(rows, separators=(",", ":")))
