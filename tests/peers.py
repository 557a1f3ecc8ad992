"""Reference programs in environments of their own, as the search benchmark makes them. For tests marked ``full``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


def answer_of(peer: str, program: str, question: Any) -> Any:
    """What ``program``, run by the peer's interpreter, prints as JSON when it reads ``question`` as JSON."""
    cache = Path(os.environ.get("HPCJF_CACHE", "~/.cache/hpcjf")).expanduser()
    python = cache / "bench" / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {peer} at {python}: tools/bench/search makes the environment")
    done = subprocess.run(
        [python, "-c", program], input=json.dumps(question), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
