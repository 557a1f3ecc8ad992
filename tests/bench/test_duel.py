"""The trainer benchmark: figures of given readings, the fixture, the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from duel.figures import Interval, agreement, mean, ratio, steps_per_cpu_s
from duel.fixture import Job, questions, reward
from duel.meter import Reading, size_of
from duel.pairs import Pair
from duel.tables import as_json, curves, of_workload, speed

TOOL = Path(__file__).parents[2] / "tools" / "bench" / "trainer"


def reading(step_s: float, *, memory: float = 500, imports: float = 5) -> Reading:
    """A first step of 9 s, which counts nowhere, and three more."""
    ends = [9 + imports + step_s * i for i in range(4)]
    return Reading(imports, imports + 1, ends, [0.1] * 4, [30.0] * 4, memory, 2**20, 1, {"torch": "2"})


PAIRS = [Pair(reading(1), reading(3, memory=1000)), Pair(reading(2, imports=6), reading(2 * 4 / 3, memory=1000))]


def test_the_first_step_does_not_count() -> None:
    assert steps_per_cpu_s(reading(0.5)) == pytest.approx(2)


def test_a_ratio_is_the_geometric_mean_over_pairs() -> None:
    found = ratio([2, 8], [1, 1])
    assert found.mean == pytest.approx(4)
    assert found.low * found.high == pytest.approx(16)
    assert of_workload("tiny", PAIRS)["tiny_ratio"].mean == pytest.approx(2)  # 3 and 4 / 3


def test_an_interval_is_students() -> None:
    found = mean([1.0, 2.0, 3.0])
    assert found == pytest.approx((2, 2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)), abs=1e-3)
    assert math.isnan(mean([1.0]).low)
    assert str(mean([1.5])) == "1.5"


def test_the_json_has_bounds_and_the_larger_of_both_models() -> None:
    one = Interval(0.8, math.nan, math.nan)
    ratios = of_workload("tiny", PAIRS) | {"smollm2_rss_ratio": one, "smollm2_ratio": Interval(1.5, 1.4, 1.6)}
    found = json.loads(json.dumps(as_json(ratios, None), allow_nan=False))
    assert found["rss_ratio"] == pytest.approx(0.8)
    assert found["import_ratio"] == pytest.approx(math.sqrt(6 / 5))
    assert (found["smollm2_ratio"], found["smollm2_ratio_low"], found["smollm2_rss_ratio_low"]) == (1.5, 1.4, None)
    assert as_json({}, None) == {}


def test_curves_agree_within_a_tenth_of_the_gain_and_with_zero_in_the_interval() -> None:
    def rising(*shifts: float) -> list[list[float]]:
        return [[shift + 0.02 * step for step in range(50)] for shift in shifts]

    def found(ours: list[list[float]]) -> tuple[float, bool]:
        agreed = agreement(ours, rising(0, 0.03, -0.03))
        assert agreed.gain == pytest.approx(0.9)
        return agreed.difference.mean, agreed.holds

    assert found(rising(0.03, 0, -0.03)) == (pytest.approx(0), True)
    assert found(rising(0.07, 0.1, 0.04)) == (pytest.approx(0.07 / 0.9), False)  # equal in every pair: 0 is outside
    assert found(rising(0.6, 0, -0.1)) == (pytest.approx(0.5 / 2.7), False)  # too much


def test_tables_name_every_figure() -> None:
    text = "\n".join(speed("tiny", PAIRS))
    assert "| steps per CPU-s | 0.75 | 0.354 | 2 [" in text
    assert "| checkpoint, MB | 1 | 1 | 1 [1, 1] |" in text
    assert "do not agree" in "\n".join(curves(agreement([[0.0] * 6], [[0.0] * 5 + [1.0]]), 1))


def test_the_fixture_is_the_same_for_both_and_every_time(tmp_path: Path) -> None:
    assert questions("{a}+{b}=", 2) == questions("{a}+{b}=")[:2]
    prompt, answer = questions("{a}+{b}=", 1)[0]
    assert len(prompt) == 6
    assert int(answer) == sum(map(int, prompt[:-1].split("+")))
    assert reward("46 x", "46", 32) == 1 + 2 / 32
    assert reward("4", "46", 32) == 1 / 32
    job = Job("model", True, "{a}", 4, 8, 32, 1e-3, 0.04, 5, 1, "folder")
    job.write(tmp_path / "job.json")
    assert Job.read(str(tmp_path / "job.json")) == job
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"123")
    assert size_of(tmp_path / "sub") == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--parts", "spead"], "--parts: no spead; known: speed, curves"),
        (["--threads", "0"], "--threads: must be at least 1"),
        (["--smollm2", "nowhere"], "--smollm2: no model in nowhere; make it with tools/smollm2"),
        (["--json", "nowhere/file"], "--json: nowhere is no folder"),
    ],
)
def test_bad_input_is_one_line(wrong: list[str], said: str) -> None:
    found = subprocess.run([sys.executable, TOOL, *wrong], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith(f"tools/bench/trainer: {said}")
    assert found.stderr.count("\n") == 1
