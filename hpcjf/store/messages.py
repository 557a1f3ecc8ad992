"""What controller and worker tell each other through files: the spec, the stop order and the result of an attempt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hpcjf.errors import StoreError
from hpcjf.store.atomic import read_json, write_json
from hpcjf.types import Cause, Purpose

Columns = dict[str, tuple[float | None, ...]]
"""Figures of rows, None where a row has none."""


class Message(BaseModel):
    """A JSON file of one version, readable only from files that this user owns."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    version: Literal[1] = 1

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises StoreError where the file is missing, damaged or of another user."""
        try:
            return cls.model_validate(read_json(path, owned_by=os.getuid()))
        except ValidationError as error:
            raise StoreError(f"not a valid {cls.__name__}: {error.errors()[0]['msg']}", where=str(path)) from error

    def write(self, path: Path) -> None:
        write_json(path, self.model_dump(mode="json"))


class AttemptSpec(Message):
    """Everything a job needs besides the frozen study two folders up."""

    name: str
    generation: int
    trial: int
    attempt: int
    config_id: str
    config: dict[str, bool | int | float | str]
    model: str
    steps: int
    training_seed: int
    purpose: Purpose


class StopOrder(Message):
    """Ask a running attempt to save and end at its next step boundary."""

    cause: Cause
    why: str


class StopRequest(Message):
    """Ask the controller for no new jobs; ``now`` also cancels those that run."""

    now: bool


class AttemptResult(Message):
    """What an attempt says of itself, written last. Scores are those of validation and of test rows."""

    name: str
    cause: Cause
    step: int
    start_step: int
    score: float | None
    seconds: float
    startup_seconds: float
    cpu_seconds: float
    peak_mb: float
    test_scores: tuple[float, ...] | None = None
    base_test_scores: tuple[float, ...] | None = None
    detail: str = ""


class Measured(BaseModel):
    """Figures of one model: of the test rows by column, and for each question of ``evaluation.choices`` 1 where the
    right answer is the most likely one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    rows: Columns
    choices: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _of_the_same_rows(self) -> Self:
        if len({len(column) for column in self.rows.values()}) > 1:
            raise ValueError("columns of different lengths")
        return self


class AttemptEvaluation(Message):
    """What a final run measured beside its test scores. ``samples`` were drawn of each row that has ``correct`` ones;
    ``base`` is the untrained model."""

    name: str
    samples: int
    policy: Measured
    base: Measured | None = None
