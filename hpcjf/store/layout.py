"""Names and places inside a run directory. Everything in it is relative: the directory can be moved as a whole."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hpcjf.errors import StoreError, UserError
from hpcjf.store.disk import disk_errors
from hpcjf.store.trust import check_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """One attempt's files. The controller writes ``spec`` and ``stop``, the job all others."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "spec.json"

    @property
    def trace(self) -> Path:
        return self.folder / "trace.h5"

    @property
    def sidecar(self) -> Path:
        """Units and meanings of the trace's columns."""
        return self.folder / "trace.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def evaluation(self) -> Path:
        """What a final run measured beside its test score."""
        return self.folder / "evaluation.json"

    @property
    def stop(self) -> Path:
        """Exists when the attempt should end at its next step."""
        return self.folder / "stop"

    @property
    def job_folder(self) -> Path:
        """The scheduler's script, pickle and logs."""
        return self.folder / "job"

    def create(self) -> None:
        """Make the folders, 0700. Nothing happens where they exist."""
        _make(self.folder.parent, self.folder, self.job_folder)


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The run directory under ``root``."""

    root: Path

    @property
    def study(self) -> Path:
        """The resolved study, frozen."""
        return self.root / "study.yaml"

    @property
    def earlier(self) -> Path:
        """What ``search.warm_start`` brought, frozen with the study."""
        return self.root / "earlier.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal" / "controller.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the one controller."""
        return self.root / "controller.lock"

    @property
    def stop_request(self) -> Path:
        return self.root / "stop.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def local_jobs(self) -> Path:
        """Who the processes of the local executor are."""
        return self.root / "jobs"

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    def attempt(self, trial: int, attempt: int) -> AttemptPaths:
        return AttemptPaths(self.trials / f"{trial:04d}" / f"attempt-{attempt:02d}")

    def entry(self, config_id: str, model: str, seed: int) -> Path:
        """:raises StoreError: a name that is not one plain path component."""
        return self.registry / entry_name(config_id, model, seed)

    def create(self) -> None:
        """Make the folders, 0700. Any number of processes may do so at once, and again.

        :raises UserError: ``root`` holds something that is no run directory.
        :raises UntrustedPathError: see :meth:`check_owner`.
        """
        self.check_owner()
        with disk_errors(self.root):
            self.root.parent.mkdir(parents=True, exist_ok=True)
        _make(self.root)
        if self._foreign():
            raise UserError("not empty and not a run directory", where=str(self.root), fix="name a new folder")
        # The journal's folder comes first: it is what marks the directory as ours.
        _make(self.journal.parent, self.trials, self.registry)

    def _foreign(self) -> bool:
        """Full of something else. A folder called ``journal`` alone does not make it ours."""
        with disk_errors(self.root):
            if not os.listdir(self.root):
                return False
            folder = self.journal.parent
            return not folder.is_dir() or any(not name.startswith(self.journal.name) for name in os.listdir(folder))

    def check_owner(self) -> None:
        """For commands that write. Readers (``status``) may look into another user's run and need no check.

        :raises UntrustedPathError: the directory or a parent belongs to someone else than us and root, or
            others can write it (a parent with the sticky bit, such as /tmp, is fine).
        """
        with disk_errors(self.root):
            check_path(self.root, os.geteuid())

    @property
    def owner(self) -> int:
        """The user id whose files readers of this run should trust."""
        with disk_errors(self.root):
            return self.root.stat().st_uid


def entry_name(config_id: str, model: str, seed: int) -> str:
    for part in (config_id, model):
        if not _NAME.fullmatch(part):
            raise StoreError(f"{part!r} cannot be part of a folder name", fix="use letters, digits, '.', '_' and '-'")
    return f"{config_id}-{model}-s{seed}"


def _make(*folders: Path) -> None:
    for folder in folders:
        with disk_errors(folder):
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                if folder.is_symlink() or not folder.is_dir():
                    raise
