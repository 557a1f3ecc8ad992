from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcjf.errors import DiskFullError, FencedError, StoreError, UntrustedPathError
from hpcjf.store import registry as registry_module
from hpcjf.store.registry import Registry, RegistryEntry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    root = tmp_path / "registry"
    root.mkdir(mode=0o700)
    return Registry(root)


@pytest.fixture
def entry(registry: Registry) -> RegistryEntry:
    entry = registry.entry("c0ffee", "tiny-s", 1)
    entry.claim("t1.1", 1)
    return entry


def save(entry: RegistryEntry, step: int, *, owner: str = "t1.1", generation: int = 1, size: int = 1000) -> Path:
    staging = entry.staging(step)
    (staging / "adapter").mkdir()
    (staging / "adapter" / "weights").write_bytes(bytes([step % 256]) * size)
    (staging / "state").write_text(f"step {step}")
    return entry.publish(staging, step, owner=owner, generation=generation, meta={"loss": step / 2})


def steps(entry: RegistryEntry) -> list[int]:
    return sorted(int(path.name[5:]) for path in entry.folder.glob("step-*"))


def litter(entry: RegistryEntry) -> list[str]:
    return [path.name for path in entry.folder.iterdir() if path.name.startswith(".")]


def newest_step(entry: RegistryEntry) -> int | None:
    found = entry.newest()
    return None if found is None else found.step


def test_what_is_published_is_found_with_its_meta_and_parent(entry: RegistryEntry) -> None:
    assert entry.newest() is None
    assert entry.steps_done() == 0
    save(entry, 10)
    path = save(entry, 20)
    found = entry.newest()
    assert found is not None
    assert (found.step, found.path, found.config_id, found.parent, found.meta) == (
        20,
        path,
        "c0ffee",
        10,
        {"loss": 10.0},
    )
    assert path.name == "step-00000020"
    assert (path / "adapter" / "weights").read_bytes() == b"\x14" * 1000
    assert entry.steps_done() == 20
    assert litter(entry) == []


def test_the_entry_file_tells_owner_generation_and_steps(entry: RegistryEntry) -> None:
    save(entry, 10)
    assert json.loads((entry.folder / "entry.json").read_text()) == {
        "config_id": "c0ffee",
        "model": "tiny-s",
        "seed": 1,
        "owner": "t1.1",
        "generation": 1,
        "steps": 10,
    }


def test_the_manifest_is_written_last(entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """L20"""
    seen: list[list[str]] = []
    publish_folder = registry_module.publish_folder

    def spy(tmp: Path, final: Path) -> None:
        manifest = tmp / "manifest.json"
        late = [
            path for path in tmp.rglob("*") if path.is_file() and path.stat().st_mtime_ns > manifest.stat().st_mtime_ns
        ]
        seen.append([path.name for path in late])
        publish_folder(tmp, final)

    monkeypatch.setattr(registry_module, "publish_folder", spy)
    save(entry, 10)
    assert seen == [[]]


def test_steps_are_ordered_as_numbers(entry: RegistryEntry) -> None:
    """K6: sorted as text, a step of nine digits comes before one of eight."""
    for step in (9, 10, 99_999_999, 100_000_000):
        save(entry, step)
    assert newest_step(entry) == entry.steps_done() == 100_000_000
    assert entry.collect(1) == [9, 10, 99_999_999]


@pytest.mark.parametrize("name", ["adapter/weights", "state", "manifest.json"])
@pytest.mark.parametrize("fault", ["flip", "cut", "remove", "link"])
def test_a_damaged_checkpoint_is_passed_over(entry: RegistryEntry, name: str, fault: str) -> None:
    """K2: the newest complete one wins, not the newest folder."""
    save(entry, 10)
    path = save(entry, 20) / name
    data = bytearray(path.read_bytes())
    if fault == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif fault == "cut":
        path.write_bytes(data[:-2])
    else:
        path.rename(path.with_name("elsewhere"))
        if fault == "link":
            path.symlink_to("elsewhere")
    assert newest_step(entry) == 10
    if fault in ("cut", "remove") or name == "manifest.json":
        assert entry.steps_done() == 10


def test_every_flipped_bit_of_a_manifest_is_noticed(entry: RegistryEntry) -> None:
    path = save(entry, 20) / "manifest.json"
    whole = path.read_bytes()
    for place in range(0, len(whole) - 1, 7):
        data = bytearray(whole)
        data[place] ^= 4
        path.write_bytes(data)
        assert newest_step(entry) is None, place
    path.write_bytes(whole)
    assert newest_step(entry) == 20


def test_a_checkpoint_of_another_entry_or_step_is_passed_over(registry: Registry, entry: RegistryEntry) -> None:
    save(entry, 10)
    other = registry.entry("decade", "tiny-s", 1)
    other.claim("t2.1", 1)
    save(other, 30, owner="t2.1").rename(entry.folder / "step-00000030")
    save(entry, 20).rename(entry.folder / "step-00000040")
    assert newest_step(entry) == entry.steps_done() == 10


def test_another_users_files_are_passed_over(entry: RegistryEntry, as_stranger: Callable[[Path], int]) -> None:
    path = save(entry, 10)
    (path / "state").chmod(0o666)
    assert newest_step(entry) is None
    (path / "state").chmod(0o600)
    assert newest_step(entry) == 10
    if as_stranger(path / "state") == 0:
        assert newest_step(entry) is None


def test_a_link_in_a_staging_folder_is_not_published(entry: RegistryEntry, tmp_path: Path) -> None:
    staging = entry.staging(10)
    (staging / "weights").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedPathError):
        entry.publish(staging, 10, owner="t1.1", generation=1, meta={})
    assert entry.newest() is None
    assert litter(entry) == []


def test_a_replaced_owner_cannot_publish_and_leaves_nothing(entry: RegistryEntry) -> None:
    save(entry, 10)
    entry.claim("t1.2", 1)
    with pytest.raises(FencedError, match=re.escape("owned by t1.2 (generation 1), not by t1.1 (1); end without")):
        save(entry, 20)
    save(entry, 20, owner="t1.2")
    assert steps(entry) == [10, 20]
    assert litter(entry) == []


def test_an_owner_replaced_while_it_saves_is_fenced(entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync_tree = registry_module.fsync_tree

    def overtaken(folder: Path) -> None:
        fsync_tree(folder)
        monkeypatch.undo()
        entry.claim("t1.2", 2)

    monkeypatch.setattr(registry_module, "fsync_tree", overtaken)
    with pytest.raises(FencedError, match=r"owned by t1\.2"):
        save(entry, 10)
    assert entry.newest() is None


def test_an_older_generation_cannot_claim(entry: RegistryEntry) -> None:
    entry.claim("t1.2", 5)
    with pytest.raises(FencedError, match="generation 5"):
        entry.claim("t1.3", 4)
    assert entry.state().owner == "t1.2"
    with pytest.raises(FencedError):
        save(entry, 10, owner="t1.2", generation=4)


def test_an_entry_nobody_claimed_takes_nothing(registry: Registry) -> None:
    entry = registry.entry("c0ffee", "tiny-s", 1)
    entry.folder.mkdir()
    with pytest.raises(FencedError, match="owned by nobody"):
        save(entry, 10)


def test_a_claim_sweeps_what_an_interrupted_save_left(entry: RegistryEntry) -> None:
    (entry.staging(10) / "weights").write_bytes(b"half")
    entry.claim("t1.2", 1)
    assert litter(entry) == []


def test_a_step_saved_again_replaces_the_first(entry: RegistryEntry) -> None:
    save(entry, 10)
    save(entry, 20, size=5)
    path = save(entry, 20, size=7)
    assert (path / "adapter" / "weights").stat().st_size == 7
    found = entry.newest()
    assert found is not None
    assert (found.step, found.parent) == (20, 10)


def test_a_damaged_entry_file_is_named(entry: RegistryEntry) -> None:
    (entry.folder / "entry.json").write_text('{"owner": "x"}')
    with pytest.raises(StoreError, match=r"entry\.json: not an entry"):
        entry.claim("t1.2", 2)


@pytest.mark.parametrize(
    ("keep", "pinned", "left"),
    [
        (1, (), [40]),
        (2, (), [30, 40]),
        (1, (10, 30), [10, 30, 40]),
        (9, (), [10, 20, 30, 40]),
        (0, (), [40]),
        (-1, (), [40]),
    ],
)
def test_collection_keeps_the_newest_and_the_pinned(
    entry: RegistryEntry, keep: int, pinned: tuple[int, ...], left: list[int]
) -> None:
    """K6: a limit of 0 deletes everything elsewhere; here the last good one never goes."""
    for step in (10, 20, 30, 40):
        save(entry, step)
    entry.staging(50)
    gone = entry.collect(keep, pinned)
    assert steps(entry) == left
    assert gone == sorted({10, 20, 30, 40} - set(left))
    assert litter(entry) == []


def test_collection_never_counts_on_a_damaged_checkpoint(entry: RegistryEntry) -> None:
    for step in (10, 20, 30):
        path = save(entry, step)
    (path / "state").write_text("step 99")
    assert entry.collect(1) == [10]
    assert steps(entry) == [20, 30]
    assert newest_step(entry) == 20
    (entry.folder / "step-00000020" / "manifest.json").unlink()
    assert entry.collect(1) == []
    assert steps(entry) == [20, 30]


def test_incomplete_ones_below_the_newest_go_and_take_no_place(entry: RegistryEntry) -> None:
    for step in (10, 20, 30):
        save(entry, step)
    (entry.folder / "step-00000020" / "state").unlink()
    assert entry.collect(2) == [20]
    assert steps(entry) == [10, 30]


def test_the_byte_budget_frees_the_least_recently_written_first(registry: Registry) -> None:
    paths = []
    for age, config in enumerate(("aa", "bb", "cc", "dd")):
        entry = registry.entry(config, "tiny-s", 1)
        entry.claim("o", 1)
        paths.append(save(entry, 10, owner="o", size=100_000))
        os.utime(paths[-1] / "manifest.json", (1e9 - age, 1e9 - age))
    total = registry.total_bytes()
    assert 400_000 < total < 420_000
    assert registry.collect_budget(total, ()) == []
    protected = [paths[3], paths[2].parent]
    assert registry.collect_budget(320_000, protected) == [paths[1]]
    assert registry.collect_budget(0, protected) == [paths[0]]
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert 200_000 < registry.total_bytes() < 210_000


def test_a_registry_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "none")
    assert registry.total_bytes() == 0
    assert registry.collect_budget(0, ()) == []
    assert registry.entry("a", "b", 1).newest() is None
    with pytest.raises(StoreError):
        registry.entry("a", "b", 1).claim("o", 1)


def test_a_name_cannot_leave_the_registry(registry: Registry) -> None:
    with pytest.raises(StoreError):
        registry.entry("../a", "b", 1)


def test_a_full_disk_keeps_the_older_checkpoint_and_frees_the_staging(
    entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(entry, 10)

    def fails(*_: object) -> None:
        raise DiskFullError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(registry_module, "fsync_tree", fails)
        with pytest.raises(DiskFullError):
            save(entry, 20)
    assert newest_step(entry) == 10
    assert litter(entry) == []
