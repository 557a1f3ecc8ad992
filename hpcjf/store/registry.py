"""Checkpoints by configuration, model and training seed, so that any later trial of it can go on from there.

A checkpoint is a folder ``step-XXXXXXXX`` whose manifest, written last, holds the size and SHA-256 of every file.
It counts only while all of that is true. Owners are fenced: an attempt that was replaced cannot publish.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hpcjf.errors import FencedError, StoreError
from hpcjf.store.atomic import MissingFileError, canonical_json, publish_folder, read_json, write_json
from hpcjf.store.disk import disk_errors, fsync_folder, fsync_tree
from hpcjf.store.layout import entry_name
from hpcjf.store.locks import Lock
from hpcjf.store.trust import open_regular, untrusted_kind

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
_STEP = re.compile(r"step-(\d{8,})")
_LOCK_SECONDS = 120.0
"""Under the lock there are only renames, so that this long a wait means a stuck mount."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint. ``parent`` is the step of the one before it, None for the first."""

    step: int
    path: Path
    config_id: str
    parent: int | None
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EntryState:
    """entry.json. ``steps`` is the newest step ever published, ``owner`` "" before the first claim."""

    config_id: str
    model: str
    seed: int
    owner: str = ""
    generation: int = 0
    steps: int = 0


class Registry:
    """All entries under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entry(self, config_id: str, model: str, seed: int) -> RegistryEntry:
        """A handle; nothing is made on disk before :meth:`RegistryEntry.claim`."""
        return RegistryEntry(self.root, EntryState(config_id, model, seed))

    def total_bytes(self) -> int:
        """Sum of all file sizes, unfinished checkpoints included."""
        return _tree_bytes(self.root)

    def collect_budget(self, max_bytes: int, protected: Collection[Path]) -> list[Path]:
        """Remove checkpoints, the least recently written first, until ``max_bytes`` is kept. Returns what went.

        ``protected`` holds checkpoint folders or whole entry folders. Even the newest of an entry can go, so the
        caller protects whatever a running or coming trial needs; when the rest does not suffice, more stays.
        """
        safe = {each.resolve() for each in protected}
        total, removed = self.total_bytes(), []
        for path in sorted(self._checkpoints(), key=_written):
            if total <= max_bytes:
                break
            if path.resolve() in safe or path.resolve().parent in safe:
                continue
            total -= _tree_bytes(path)
            with Lock(path.parent / "entry.lock", timeout=_LOCK_SECONDS):
                _remove(path)
            removed.append(path)
        return removed

    def _checkpoints(self) -> list[Path]:
        entries = [each for each in _listdir(self.root) if each.is_dir() and not each.is_symlink()]
        return [path for entry in entries for _, path in _steps(entry)]


class RegistryEntry:
    """One configuration, model and seed. Its owner is the only one to stage, publish and collect."""

    def __init__(self, root: Path, blank: EntryState) -> None:
        self.root, self._blank = root, blank
        self.folder = root / entry_name(blank.config_id, blank.model, blank.seed)

    def state(self) -> EntryState:
        """:raises StoreError: entry.json is damaged."""
        path = self.folder / "entry.json"
        try:
            return EntryState(**read_json(path, owned_by=self._uid()))
        except MissingFileError:
            return self._blank
        except TypeError as error:
            raise StoreError(f"not an entry: {error}", where=str(path), fix="move the file away") from error

    def claim(self, owner: str, generation: int) -> None:
        """Make ``owner`` (the attempt) the one that may publish. Within a generation the last claim wins.

        Leftovers of an earlier owner's interrupted saves go.

        :raises FencedError: a newer controller generation has claimed the entry.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._lock():
            state = self.state()
            if state.generation > generation:
                raise self._fenced(state, owner, generation)
            self._write(replace(state, owner=owner, generation=generation))
            self._sweep()

    def staging(self, step: int) -> Path:
        """A new empty folder to write a checkpoint into."""
        path = self.folder / f".staging-{step:08d}-{secrets.token_hex(6)}"
        with disk_errors(path):
            path.mkdir(mode=0o700)
        return path

    def publish(self, staging: Path, step: int, *, owner: str, generation: int, meta: Mapping[str, Any]) -> Path:
        """Turn ``staging`` into the checkpoint of ``step``, all or nothing; one of the same step is replaced.

        ``meta`` must be plain JSON; it comes back in :class:`Checkpoint`.

        :raises FencedError: someone else owns the entry now; ``staging`` is removed.
        :raises DiskFullError: ``staging`` is removed, older checkpoints stand.
        """
        final = self.folder / f"step-{step:08d}"
        try:
            self._check_owner(owner, generation)
            with disk_errors(staging):
                self._write_manifest(staging, step, meta)
                fsync_tree(staging)
            with self._lock():
                state = self._check_owner(owner, generation)
                if final.exists():
                    _remove(final)
                publish_folder(staging, final)
                self._write(replace(state, steps=max(step, state.steps)))
        except BaseException as error:
            shutil.rmtree(staging, ignore_errors=True)
            if isinstance(error, StoreError):  # a new owner sweeps what the old one was writing
                self._check_owner(owner, generation)
            raise
        return final

    def _write_manifest(self, folder: Path, step: int, meta: Mapping[str, Any]) -> None:
        older = [number for number, path in _steps(self.folder) if number < step and self._sized(path)]
        body = {
            "step": step,
            "config_id": self._blank.config_id,
            "parent": max(older, default=None),
            "files": {name: _fingerprint(folder / name, None) for name in sorted(_files(folder))},
            "meta": dict(meta),
        }
        write_json(folder / MANIFEST, body | {"sha256": hashlib.sha256(canonical_json(body)).hexdigest()})

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint whose files are all there with the right sizes and hashes; others are passed over."""
        return next((found for _, path in self._descending() if (found := self._load(path)) is not None), None)

    def steps_done(self) -> int:
        """Step from which a trial could go on, 0 without a checkpoint. Looks at sizes, reads no weights."""
        return next((step for step, path in self._descending() if self._sized(path)), 0)

    def collect(self, keep: int, pinned: Collection[int] = ()) -> list[int]:
        """After a successful save: remove all but the newest ``keep`` complete ones and ``pinned``. Returns the steps.

        The newest that verifies stays whatever ``keep`` says, and everything above it. Leftovers of interrupted
        saves go.
        """
        good = self.newest()
        if good is None:
            return []
        older = [step for step, path in self._descending() if step < good.step and self._sized(path)]
        kept = {good.step, *older[: max(keep, 1) - 1], *pinned}
        removed = []
        with self._lock():
            for step, path in self._descending():
                if step < good.step and step not in kept:
                    _remove(path)
                    removed.append(step)
            self._sweep()
        return sorted(removed)

    def _sweep(self) -> None:
        for path in _listdir(self.folder):
            if path.name.startswith((".staging-", ".removed-")):
                shutil.rmtree(path, ignore_errors=True)

    def _descending(self) -> list[tuple[int, Path]]:
        return sorted(_steps(self.folder), reverse=True)

    def _load(self, path: Path) -> Checkpoint | None:
        try:
            manifest = self._manifest(path)
            for name, expected in manifest["files"].items():
                if _fingerprint(path / name, self._uid()) != expected:
                    raise StoreError("damaged", where=name)
        except (OSError, StoreError) as error:
            log.warning("%s: checkpoint passed over: %s", path, error)
            return None
        return Checkpoint(manifest["step"], path, manifest["config_id"], manifest["parent"], manifest["meta"])

    def _manifest(self, path: Path) -> dict[str, Any]:
        """:raises StoreError: missing, damaged, or of another entry or step."""
        manifest = read_json(path / MANIFEST, owned_by=self._uid())
        claimed = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
        if claimed != hashlib.sha256(canonical_json(manifest)).hexdigest():
            raise StoreError("the manifest is damaged", where=str(path))
        if manifest["config_id"] != self._blank.config_id or f"step-{manifest['step']:08d}" != path.name:
            raise StoreError("the manifest is of another checkpoint", where=str(path))
        found: dict[str, Any] = manifest
        return found

    def _sized(self, path: Path) -> bool:
        try:
            files = self._manifest(path)["files"].items()
            return all((path / name).lstat().st_size == each["size"] for name, each in files)
        except (OSError, StoreError):
            return False

    def _uid(self) -> int:
        """Whoever owns the registry's folder is the one to trust."""
        try:
            return self.root.stat().st_uid
        except OSError:
            return os.geteuid()

    def _lock(self) -> Lock:
        return Lock(self.folder / "entry.lock", timeout=_LOCK_SECONDS)

    def _write(self, state: EntryState) -> None:
        write_json(self.folder / "entry.json", asdict(state))

    def _check_owner(self, owner: str, generation: int) -> EntryState:
        state = self.state()
        if (state.owner, state.generation) != (owner, generation):
            raise self._fenced(state, owner, generation)
        return state

    def _fenced(self, state: EntryState, owner: str, generation: int) -> FencedError:
        return FencedError(
            f"owned by {state.owner or 'nobody'} (generation {state.generation}), not by {owner} ({generation})",
            where=str(self.folder),
            fix="end without writing",
        )


def _steps(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in _listdir(folder):
        found = _STEP.fullmatch(path.name)
        if found and path.is_dir() and not path.is_symlink():
            yield int(found.group(1)), path


def _listdir(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _files(folder: Path) -> Iterator[str]:
    """Relative names of all files below. :raises UntrustedPathError: a link or a special file."""
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise untrusted_kind(path)
        yield from (Path(where, name).relative_to(folder).as_posix() for name in names if name != MANIFEST)


def _fingerprint(path: Path, owned_by: int | None) -> dict[str, int | str]:
    with os.fdopen(open_regular(path, os.O_RDONLY, owned_by=owned_by), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"size": os.fstat(file.fileno()).st_size, "sha256": digest}


def _written(path: Path) -> float:
    """When the checkpoint was finished; one without a manifest never was, and goes first."""
    try:
        return (path / MANIFEST).lstat().st_mtime
    except OSError:
        return 0.0


def _tree_bytes(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(where, name).lstat().st_size
    return total


def _remove(path: Path) -> None:
    """Out of sight first: a reader must not meet half a checkpoint."""
    hidden = path.with_name(f".removed-{path.name}-{secrets.token_hex(6)}")
    with disk_errors(path):
        os.rename(path, hidden)
        fsync_folder(path.parent)
    shutil.rmtree(hidden, ignore_errors=True)
