"""The race of a peer, against a script that asks for what the test says."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.hill import Hill

from hpcjf.types import Config
from race.outcome import Outcome
from race.peer import Peer, PeerError, Way, run_peer
from race.pool import Site

GOOD: Config = {"learning_rate": 1e-5, "clip_range": 0.2}
FAIR: Config = {"learning_rate": 2e-5, "clip_range": 0.2}
POOR: Config = {"learning_rate": 2e-6, "clip_range": 0.2}
DIVERGING: Config = {"learning_rate": 9e-5, "clip_range": 0.2}
PLENTY = 1e6


class Raced:
    """One race of the script, and what it was told."""

    def __init__(
        self,
        folder: Path,
        jobs: Sequence[tuple[Config, int]],
        *,
        site: Site | None = None,
        way: Way = "target",
        budget: float = PLENTY,
        **plan: Any,
    ) -> None:
        log = folder / "log"
        variant = json.dumps({"log": str(log), "jobs": jobs, "reports": False, **plan})
        peer = Peer("fake", Path(sys.executable), Path(__file__).with_name("fake_peer.py"), variant)
        site = site or Site(workers=1)
        self.outcome: Outcome = run_peer(Hill(), peer, 0, budget, site, way)
        self.messages = [json.loads(line) for line in log.read_text().splitlines()]

    def of(self, operation: str, *keys: str) -> list[Any]:
        return [[message[key] for key in keys] for message in self.messages if message["op"] == operation]


def test_a_peer_hears_what_the_problem_is(tmp_path: Path) -> None:
    start = Raced(tmp_path, [(GOOD, 10)]).messages[0]
    assert start["space"]["learning_rate"] == {"type": "real", "low": 1e-7, "high": 1e-4, "log": True}
    assert start["recipe"] == Hill().recipe
    assert (start["rungs"], start["eta"], start["seed"], start["workers"]) == ([10, 30, 90], 3, 0, 1)


def test_a_job_is_told_with_its_score_and_all_its_seconds(tmp_path: Path) -> None:
    raced = Raced(tmp_path, [(GOOD, 30), (DIVERGING, 90)])
    score = Hill().curve(GOOD, "target", 0).score_at(30)
    told = raced.of("tell", "job", "steps", "score", "cost")
    assert told == [["j0", 30, score, 20 + 30 * 4], ["j1", 50, None, 20 + 50 * 4]]
    assert raced.outcome.configurations == 2
    assert raced.outcome.steps == 80


def test_an_equal_configuration_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    told = Raced(tmp_path, [(GOOD, 10), (GOOD, 30), (GOOD, 90)]).of("tell", "cost")
    assert told == [[20 + 40], [20 + 80], [20 + 240]]


def test_a_running_job_is_reported_at_its_rungs_and_stopped_there(tmp_path: Path) -> None:
    raced = Raced(tmp_path, [(GOOD, 90), (POOR, 90)], reports=True, stopping=[["j1", 30]])
    curve = Hill().curve(POOR, "target", 0)
    reports = [["j0", 10], ["j0", 30], ["j1", 10], ["j1", 30]]
    assert raced.of("report", "job", "steps") == reports
    assert raced.of("report", "score")[-1] == [curve.score_at(30)]
    assert raced.of("tell", "job", "steps", "cost") == [["j0", 90, 20 + 360], ["j1", 30, 20 + 120]]


def test_without_reports_nobody_asks_whether_to_stop(tmp_path: Path) -> None:
    assert Raced(tmp_path, [(GOOD, 90)], stopping=[["j0", 10]]).of("report") == []


def test_a_failed_node_is_no_business_of_the_peer(tmp_path: Path) -> None:
    jobs = [({**GOOD, "learning_rate": 1e-6 * (k + 1)}, 90) for k in range(8)]
    raced = Raced(tmp_path, jobs, site=Site(workers=2, failures=0.4), reports=True)
    assert raced.outcome.jobs > 10
    told = raced.of("tell", "job", "steps", "cost")
    assert [job for job, _, _ in sorted(told)] == [f"j{k}" for k in range(8)]
    assert sum(cost for *_, cost in told) == pytest.approx(raced.outcome.cost)
    # a rung is reported once, by whichever attempt got there
    assert len(raced.of("report", "job", "steps")) == 16


def test_workers_are_kept_busy_but_for_a_peer_that_waits(tmp_path: Path) -> None:
    jobs = [({**GOOD, "learning_rate": 1e-6 * (k + 1)}, 10) for k in range(4)]
    operations = [m["op"] for m in Raced(tmp_path, jobs, site=Site(workers=3)).messages]
    assert operations[:4] == ["start", "ask", "ask", "ask"]
    held = [m["op"] for m in Raced(tmp_path, jobs, site=Site(workers=3), waiting=[2]).messages]
    assert held[:7] == ["start", "ask", "ask", "ask", "tell", "tell", "ask"]
    assert held.count("tell") == 4


def test_the_budget_ends_the_race(tmp_path: Path) -> None:
    raced = Raced(tmp_path, [(POOR, 90), (GOOD, 90), (FAIR, 90)], budget=800)
    assert raced.outcome.cost == pytest.approx(800)
    assert [p.truth for p in raced.outcome.points] == pytest.approx([0.7, 0.79, 1.0], abs=0.01)
    assert raced.outcome.regret == pytest.approx(0, abs=0.02)


def test_on_the_proxy_the_best_three_are_trained_on_the_target(tmp_path: Path) -> None:
    raced = Raced(tmp_path, [(POOR, 90), (FAIR, 90), (GOOD, 90), (DIVERGING, 90)], way="proxy")
    outcome, full = raced.outcome, 20 + 360
    assert raced.of("tell", "cost")[0] == [5 + 90]
    assert outcome.method == "fake on the proxy"
    assert [(p.cost, p.delivered) for p in outcome.points[1:]] == [(95 * k, 95 * k + full * k) for k in (1, 2, 3)]
    assert [p.config for p in outcome.points[1:]] == [POOR, FAIR, GOOD]
    assert outcome.cost == 3 * 95 + 55 + 3 * full


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"jobs": [({"learning_rate": 1.0, "clip_range": 0.2}, 90)]}, "outside the problem"),
        ({"jobs": [(GOOD, 91)]}, "outside the problem"),
        ({"jobs": [(GOOD, 90)], "stuck": True}, "waits although"),
        ({"jobs": [(GOOD, 90)], "says": "Traceback"}, "fake answers ask with 'Traceback"),
        ({"jobs": [(GOOD, 90)], "dies": True}, "fake answers tell with ''"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_named(tmp_path: Path, plan: dict[str, Any], message: str) -> None:
    with pytest.raises(PeerError, match=message):
        Raced(tmp_path, **plan)
