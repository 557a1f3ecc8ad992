"""Processes of this machine, told apart from later ones that got the same number (Linux, /proc)."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def start_token(pid: int) -> str | None:
    """Boot and start time of the live process ``pid``; None where there is none, or only a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    return f"{boot}-{fields[19]}"


def session_members(session: int, mark: str) -> list[int]:
    """Live processes of that session whose environment holds ``mark`` ("NAME=value")."""
    found = []
    for entry in _PROC.iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdecimal() else None
        if fields and fields[0] not in "ZX" and fields[3] == str(session) and mark in _environment(entry):
            found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (the state) on; the second, the name, may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _environment(process: Path) -> list[str]:
    try:
        return (process / "environ").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # gone meanwhile, or another user's
        return []
