"""A process is its number and its start; a zombie is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpcjf.cluster.processes import session_members, start_token


def test_a_live_process_keeps_its_token() -> None:
    assert start_token(os.getpid()) == start_token(os.getpid())
    assert start_token(os.getpid()) != start_token(os.getppid())


def test_the_dead_and_the_undead_have_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_token(child.pid) is None, "a zombie that nobody has reaped yet"
    child.wait()
    assert start_token(child.pid) is None


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Popen whose process is killed after the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        children.append(subprocess.Popen(argv, **options))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_names_with_brackets_and_blanks_do_not_shift_the_fields(started: Callable[..., Any]) -> None:
    command = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') R (0 1', 0, 0, 0); print(flush=True); input()"
    child = started([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert session_members(os.getsid(0), "NO=1") == []
    assert start_token(child.pid) not in (None, start_token(os.getpid()))


def test_members_of_a_session_carry_the_mark(started: Callable[..., Any]) -> None:
    child = started(["sleep", "600"], env=os.environ | {"MARK_OF": "job-1"}, start_new_session=True)
    assert session_members(child.pid, "MARK_OF=job-1") == [child.pid]
    assert session_members(child.pid, "MARK_OF=job-10") == session_members(child.pid, "MARK_OF=job") == []
    assert session_members(os.getpid(), "MARK_OF=job-1") == []
