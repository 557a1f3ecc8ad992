"""The synthetic study as a fixture."""

from __future__ import annotations

from types import ModuleType

import pytest
import synthetic as study


@pytest.fixture
def synthetic() -> ModuleType:
    return study
