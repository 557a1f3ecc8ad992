"""What full runs can tell, on a real surface."""

from __future__ import annotations

from race.noise import measure


def test_nobody_chooses_better_than_the_truly_best_and_more_runs_hold_a_better_one() -> None:
    found = list(measure(seeds=2, targets=["subtraction s>m"]))
    assert [choice.runs for choice in found] == [10, 20, 40]
    for choice in found:
        assert 0 <= choice.best <= min(choice.by_score, choice.by_surrogate) <= 0.2
    assert found[-1].best < found[0].best
