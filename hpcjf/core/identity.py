"""What a configuration is called: a hash that every process computes alike. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from hpcjf.errors import StudyError
from hpcjf.types import Config, Scalar

DIGITS = 12
"""Significant digits of a float in a canonical configuration: enough to train with, few enough to survive JSON."""


def plain(value: Any) -> Scalar:
    """The Python scalar of a Python or numpy scalar; floats are rounded to 12 significant digits."""
    if isinstance(value, str):
        return str(value)
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    raise StudyError(f"{value!r} is no value of a configuration", fix="use a finite number, a string or a boolean")


def config_id(config: Config) -> str:
    """First 12 hex digits of the SHA-256 of the canonical JSON: keys sorted, plain scalars, floats as ``repr``."""
    canonical = {str(name): plain(value) for name, value in config.items()}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
