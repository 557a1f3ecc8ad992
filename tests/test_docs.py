"""What the documentation says is so: examples are valid, links lead somewhere, tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hpcjf import __version__
from hpcjf.core import lifecycle
from hpcjf.study import Study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))


def test_the_readme_s_study_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert examples
    for example in examples:
        Study.model_validate(yaml.safe_load(example))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_checkout(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_architecture_page_lists_every_event() -> None:
    kinds = re.search(r"concern:\n(.*)\.\n", lifecycle.__doc__ or "", re.S)
    assert kinds
    page = (ROOT / "docs/architecture.md").read_text()
    names = re.sub(r"\(.*?\)", "", kinds[1]).replace("\n", " ").split(",")
    assert len(names) >= 10
    assert [name.strip() for name in names if f"`{name.strip()}`" not in page] == []


def test_the_architecture_page_places_every_part() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    parts = {
        path.stem
        for path in (ROOT / "hpcjf").iterdir()
        if not path.name.startswith(("_", "py.")) and path.suffix in ("", ".py")
    }
    assert {part for part in parts if f"`{part}`" not in page} == set()


def test_the_changelog_has_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_environment_variable_is_in_the_table() -> None:
    files = [path for folder in ("hpcjf", "tools", "tests", ".ci") for path in (ROOT / folder).rglob("*")]
    text = "".join(path.read_text() for path in files if path.is_file() and path.suffix in ("", ".py", ".sh"))
    table = (ROOT / "docs/README.md").read_text()
    assert {name for name in re.findall(r"\bHPCJF_[A-Z_]+\b", text) if f"`{name}`" not in table} == set()
