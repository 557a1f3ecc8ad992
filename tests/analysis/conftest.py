from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from builder import RunBuilder, demo


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    """An empty run directory."""
    return RunBuilder(tmp_path / "run")


@pytest.fixture(scope="session")
def demo_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole study with its finals; not to be changed."""
    root = tmp_path_factory.mktemp("demo") / "run"
    demo(root)
    return root
