"""The peers of the race: the protocol itself, and every library behind it."""

from __future__ import annotations

import functools
import statistics
import sys
from math import log10
from pathlib import Path
from typing import Any

import pytest

from hpcjf.errors import HpcjfError
from race import environments
from race.peer import Peer, PeerProcess

RUNGS = [4, 12, 36]
SPACE = {
    "rate": {"type": "real", "low": 1e-6, "high": 1e-2, "log": True},
    "size": {"type": "integer", "low": 8, "high": 64, "log": False},
    "kind": {"type": "categorical", "choices": ["a", 2, True]},
}
RECIPE = {"rate": 1e-5, "size": 60, "kind": True, "outside": 1.0}
FAKE = """
import sys
sys.path.insert(0, FOLDER)
from protocol import Job, Peer, serve

class Two(Peer):
    reports = True

    def __init__(self, start):
        self.start, self.left = start, 2

    def ask(self):
        print("not an answer")
        if not self.left:
            return None
        self.left -= 1
        return Job(self.left, {"rate": 1.0, "size": 9.0, "kind": self.start.recipe["kind"]}, self.start.full)

    def report(self, job, steps, score):
        return self.start.resource(steps) == 3 and score < 0.5

    def tell(self, job, steps, score):
        if score is None:
            self.left += 1

class One(Two):
    reports = False

serve("pip", {"two": Two, "one": One})
"""
Config = dict[str, Any]
VARIANTS = [(name, variant) for name, variants in environments.VARIANTS.items() for variant in variants]


def start(process: PeerProcess, variant: str, seed: int = 1) -> bool:
    """Whether it wants reports."""
    answer = process.request(
        "start", variant=variant, space=SPACE, recipe=RECIPE, rungs=RUNGS, eta=3, seed=seed, workers=3
    )
    assert answer["version"]
    return bool(answer["reports"])


@pytest.fixture
def fake(tmp_path: Path) -> Peer:
    script = tmp_path / "fake_peer.py"
    script.write_text(FAKE.replace("FOLDER", repr(str(Path(environments.__file__).with_name("peers")))))
    return Peer("fake", Path(sys.executable), script, "two")


class Life:
    """A search with ``parallel`` jobs at a time, which end in the order of their starts, until ``ends`` have ended.

    Every ``unlucky``-th job fails, the first one included.
    """

    def __init__(self, peer: Peer, seed: int = 1, ends: int = 30, unlucky: int = 0, parallel: int = 3) -> None:
        self.jobs: list[tuple[Config, int]] = []
        self.ended: list[tuple[Config, int]] = []
        with PeerProcess(peer) as self._process:
            self._reports = start(self._process, peer.variant, seed)
            while len(self.ended) < ends:
                while len(self.jobs) < len(self.ended) + parallel:
                    answer = self._process.request("ask")
                    assert answer["job"] == len(self.jobs)
                    self.jobs.append((answer["config"], answer["steps"]))
                self._end(len(self.ended), unlucky)

    def _end(self, job: int, unlucky: int) -> None:
        config, steps = self.jobs[job]
        reached = self._reached(job)
        score = None if unlucky and job % unlucky == 0 else height(config, reached)
        assert self._process.request("tell", job=job, steps=reached, score=score, cost=float(steps)) == {}
        self.ended.append((config, reached))

    def _reached(self, job: int) -> int:
        config, steps = self.jobs[job]
        for rung in RUNGS if self._reports else ():
            if self._process.request("report", job=job, steps=rung, score=height(config, rung))["stop"]:
                return rung
        return steps

    def best(self) -> float:
        return min(miss(config) for config, _ in self.jobs)


def height(config: Config, steps: int) -> float:
    """Best at rate 1e-3, size 16, kind 2; longer training only adds to it."""
    return -miss(config) - 1 / steps


def miss(config: Config) -> float:
    return abs(log10(config["rate"]) + 3) / 4 + abs(config["size"] - 16) / 48 + 0.3 * (config["kind"] != 2)


def inside(config: Config) -> bool:
    types = [type(config[name]) for name in SPACE]
    within = 1e-6 <= config["rate"] <= 1e-2 and 8 <= config["size"] <= 64
    return list(config) == list(SPACE) and types[:2] == [float, int] and within and config["kind"] in ("a", 2, True)


@functools.cache
def lived(name: str, variant: str) -> Life:
    return Life(peer_of(name, variant))


def peer_of(name: str, variant: str) -> Peer:
    if not environments.ready(name):
        pytest.skip(f"the environment of {name} is not there; a full run of tools/bench/search makes it")
    return environments.peer_of(name, variant)


every_peer = pytest.mark.parametrize(("name", "variant"), VARIANTS)
full = pytest.mark.full
SINGLE = {"tpe", "cqr", "gp"}
"""Variants that know the full budget alone."""


def test_answers_keep_to_the_protocol_whatever_a_library_prints(fake: Peer) -> None:
    with PeerProcess(fake) as process:
        assert start(process, "two")
        config = {"rate": 1e-2, "size": 9, "kind": True}
        assert process.request("ask") == {"job": 0, "config": config, "steps": 36}
        assert process.request("ask")["job"] == 1
        assert process.request("ask") == {"done": True}
        assert process.request("tell", job=1, steps=36, score=None, cost=1.0) == {}
        assert process.request("ask")["job"] == 2


def test_reports_reach_the_peer_below_the_last_rung_of_a_job(fake: Peer) -> None:
    with PeerProcess(fake) as process:
        start(process, "two")
        process.request("ask")
        told = [(4, 0.1), (12, 0.1), (12, 0.9), (36, 0.1)]
        stops = [process.request("report", job=0, steps=steps, score=score)["stop"] for steps, score in told]
        assert stops == [False, True, False, False]


def test_a_process_serves_one_search_after_another(fake: Peer) -> None:
    with PeerProcess(fake) as process:
        for variant, reports in (("two", True), ("one", False)):
            assert start(process, variant) is reports
            assert [process.request("ask").get("job") for _ in range(3)] == [0, 1, None]


def test_an_environment_is_made_once_and_anew_for_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCJF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "_PEERS", tmp_path)
    versions = tmp_path / "requirements/toy.txt"
    versions.parent.mkdir()
    versions.write_text(f"{tmp_path}/nothing-here.whl\n")
    with pytest.raises(HpcjfError, match=r"environment of toy: .*nothing-here"):
        environments.prepare("toy")
    assert not environments.ready("toy")
    versions.write_text("# no packages\n")
    environments.prepare("toy")
    assert environments.ready("toy")
    made = environments.peer_of("toy", "any").python.lstat().st_ino
    environments.prepare("toy")
    assert environments.peer_of("toy", "any").python.lstat().st_ino == made
    versions.write_text("# others\n")
    assert not environments.ready("toy")


def test_every_peer_has_a_script_and_pinned_versions() -> None:
    for name, variant in VARIANTS:
        script = environments.peer_of(name, variant).script
        assert f'"{variant}"' in script.read_text()
        pins = (script.parent / "requirements" / f"{name}.txt").read_text().splitlines()
        assert all("==" in pin for pin in pins)
        assert not any(pin.startswith(("torch", "nvidia")) for pin in pins)


@full
@every_peer
def test_a_search_starts_with_the_recipe_and_finds_better(name: str, variant: str) -> None:
    life = lived(name, variant)
    assert life.jobs[0][0] == {key: RECIPE[key] for key in SPACE}
    assert all(inside(config) for config, _ in life.jobs)
    assert life.best() < 0.4 < 1.7 < miss(RECIPE)


@full
@every_peer
def test_only_the_single_fidelity_peers_keep_to_the_full_budget(name: str, variant: str) -> None:
    reached = {steps for _, steps in lived(name, variant).ended}
    assert reached == ({36} if variant in SINGLE else set(RUNGS))


@full
@every_peer
def test_a_search_is_the_same_from_the_same_seed_and_no_other(name: str, variant: str) -> None:
    again = Life(peer_of(name, variant), ends=14)
    assert again.jobs == lived(name, variant).jobs[: len(again.jobs)]
    assert Life(peer_of(name, variant), seed=2, ends=4).jobs != again.jobs[:7]


@full
@every_peer
def test_a_search_survives_failures(name: str, variant: str) -> None:
    life = Life(peer_of(name, variant), ends=16, unlucky=3)
    assert all(inside(config) for config, _ in life.jobs)
    assert len({tuple(config.items()) for config, _ in life.jobs}) > 5


@full
@pytest.mark.parametrize(
    ("name", "variant", "middle"),
    [("hpbandster", "bohb", 3), ("hpbandster", "hyperband", 3), ("smac", "multi-fidelity", 5)],
)
def test_brackets_follow_each_other_and_the_best_are_promoted(name: str, variant: str, middle: int) -> None:
    """HpBandSter rounds the middle bracket down to 3 configurations; SMAC, as the paper of Hyperband does, up to 5."""
    sizes = [(4, 9), (12, 3), (36, 1), (12, middle), (36, 1), (36, 3), (4, 2)]
    expected = [steps for steps, count in sizes for _ in range(count)]
    jobs = Life(peer_of(name, variant), parallel=1, ends=len(expected)).ended
    assert [steps for _, steps in jobs] == expected
    first = sorted((config for config, _ in jobs[:9]), key=miss)
    assert sorted((config for config, _ in jobs[9:12]), key=miss) == first[:3]
    assert jobs[12][0] == first[0]


@full
def test_the_model_of_bohb_is_in_use() -> None:
    """Its generator falls back on random configurations when anything at all goes wrong."""

    def late(variant: str) -> float:
        configs = [config for config, steps in Life(peer_of("hpbandster", variant), ends=90).ended[45:] if steps == 4]
        return statistics.median(map(miss, configs))

    assert late("bohb") < 0.7 * late("hyperband")


@full
@pytest.mark.parametrize(("name", "variant"), [("optuna", "tpe-hyperband"), ("syne", "asha"), ("syne", "bohb")])
def test_stopping_peers_stop_most_jobs_early_but_not_the_best(name: str, variant: str) -> None:
    ended = lived(name, variant).ended
    assert sum(steps < 36 for _, steps in ended) > len(ended) / 4
    assert min(ended, key=lambda job: miss(job[0]))[1] == 36
