"""Programs that are killed, and small disks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

BYTES = 256 * 1024


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True)


def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = _mount(Path(folder))
        if mounted:
            _unmount(Path(folder))
    return mounted


@dataclass(frozen=True)
class Disk:
    """A folder where at most ``BYTES`` fit into a file; ``limit`` must be set in the process that writes."""

    folder: Path
    limit: Callable[[], None] | None


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))


@pytest.fixture(params=["limit", "tmpfs"] if _can_mount() else ["limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A disk that is soon full: a limit on file sizes for everybody, and a small file system for root."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    if request.param == "limit":
        yield Disk(folder, _limit)
        return
    assert _mount(folder)
    folder.chmod(0o700)
    try:
        yield Disk(folder, None)
    finally:
        _unmount(folder)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code with arguments; what still runs at the end of the test is killed."""
    jobs: list[subprocess.Popen[str]] = []

    def start(code: str, *args: object, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, args)]
        job = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit, start_new_session=True
        )
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        with suppress(ProcessLookupError):
            job.kill()
        job.communicate(timeout=60)
