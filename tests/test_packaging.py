"""The wheel holds everything that a checkout holds, and works without one."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOMES = {"hpcjf": "hpcjf", "configs": "hpcjf/configs", "slurm_templates": "hpcjf/slurm_templates"}
"""Folders of the checkout and where they are installed."""
CHECKOUT_ONLY = {"configs/constraints.txt"}


def checkout_files() -> list[str]:
    """Files of the checkout that git would keep, committed or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy: a build folder left in the checkout must not fill its gaps."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in checkout_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def wheel_text(wheel: Path, ending: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(ending))
    return archive.read(name).decode()


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    wanted = set()
    for name in checkout_files():
        top, _, rest = name.partition("/")
        if top in HOMES and name not in CHECKOUT_ONLY:
            wanted.add(f"{HOMES[top]}/{rest}")
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.parametrize(
    "pattern",
    [
        "hpcjf/py.typed",
        "hpcjf/analysis/*.j2",
        "hpcjf/configs/*.yaml",
        "hpcjf/configs/recipes/*.yaml",
        "hpcjf/slurm_templates/*.sbatch",
    ],
)
def test_the_wheel_holds_data_files_of_every_kind(installed: Path, pattern: str) -> None:
    assert list(installed.glob(pattern))


def test_the_wheel_holds_nothing_of_the_checkout_alone(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hpcjf"}
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("constraints.txt")]


def test_the_metadata_names_version_licence_and_command(wheel: Path) -> None:
    metadata = Parser().parsestr(wheel_text(wheel, ".dist-info/METADATA"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel_text(wheel, ".dist-info/entry_points.txt"))
    assert (metadata["Name"], metadata["License-File"]) == ("hpcjf", "LICENSE")
    assert metadata["Version"] == wheel.name.split("-")[1]
    assert dict(entry_points["console_scripts"]) == {"hpcjf": "hpcjf.cli:main"}
    assert "Apache License" in wheel_text(wheel, "licenses/LICENSE")


def test_the_installed_package_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1])\nimport hpcjf; print(hpcjf.__file__)\n"
    code += "sys.argv = ['hpcjf', *sys.argv[2:]]\nfrom hpcjf.cli import main; main()"
    command = [sys.executable, "-c", code, str(installed), "init", "my-study"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(installed / "hpcjf/__init__.py")
    assert (tmp_path / "my-study/study.yaml").read_text()


def pinned() -> dict[str, str]:
    lines = (ROOT / "configs/constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_dependency_is_pinned(wheel: Path) -> None:
    metadata = Parser().parsestr(wheel_text(wheel, ".dist-info/METADATA"))
    names = {line.partition(";")[0].split(">")[0].strip() for line in metadata.get_all("Requires-Dist", [])}
    normal = {name.lower().replace("_", "-") for name in pinned()}
    assert {"torch", "pytest"} <= names
    assert {name for name in names if name.lower() not in normal} == {"vllm"}, "which brings a torch of its own"


def test_pins_suit_every_platform() -> None:
    versions = pinned()
    assert versions["torch"] == "2.13.0"
    assert not [name for name in versions if name.startswith(("nvidia", "triton", "cuda"))]
    assert not [version for version in versions.values() if "+" in version or "@" in version]
