"""Rewards as training sees them: one number a completion, or None for one that could not be judged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from hpcjf.errors import HpcjfError, TrainingError
from hpcjf.tasks.base import Row
from hpcjf.training.distributed import gathered, share

Score = Callable[[Sequence[Row], Sequence[str]], Sequence[float | None]]


class Judge:
    """Calls ``score``, a reward function over rows and their completions.

    Where it raises, it is called for each completion by itself, and those that raise again have no reward; the first of
    them is written to standard error. A function that has never given a reward is broken: TrainingError.
    """

    def __init__(self, score: Score) -> None:
        self._score = score
        self._works = self._told = False

    def __call__(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float | None]:
        """Rewards ``[B]``, of which each process that shares a batch judges its part. Raises TrainingError for anything
        but one number or None for each completion."""
        return gathered(self._part(share(rows), share(texts)))

    def _part(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float | None]:
        try:
            given = self._score(rows, texts)
        except HpcjfError:
            raise
        except Exception:  # a reward function may raise anything
            return self._apart(rows, texts)
        self._works = True
        return _numbers(given, len(rows))

    def _apart(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float | None]:
        found: list[float | None] = []
        said = ""
        for row, text in zip(rows, texts, strict=True):
            try:
                found += _numbers(self._score([row], [text]), 1)
                self._works = True
            except HpcjfError:
                raise
            except Exception as error:  # as above
                found.append(None)
                said = said or f"the reward raises {type(error).__name__}: {error}"[:300]
        if not self._works:
            raise TrainingError(said, where="the task's reward", fix="mend it; it failed for every completion")
        if said and not self._told:
            self._told = True
            print(f"hpcjf: {said}; such completions count as without reward", file=sys.stderr, flush=True)
        return found


def _numbers(given: Sequence[float | None], count: int) -> list[float | None]:
    where, fix = "the task's reward", "return one number, or None, for each completion"
    try:
        values = list(given)
    except TypeError as error:
        raise TrainingError(f"the reward gave {type(given).__name__}, not a list", where=where, fix=fix) from error
    if len(values) != count:
        raise TrainingError(f"the reward gave {len(values)} values for {count} completions", where=where, fix=fix)
    try:
        return [None if value is None else float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise TrainingError(f"the reward gave what is no number ({error})", where=where, fix=fix) from error
