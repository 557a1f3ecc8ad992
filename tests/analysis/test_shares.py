from __future__ import annotations

import numpy as np
import pytest

from hpcjf.analysis.compare import estimate
from hpcjf.analysis.shares import Array, share

RNG = np.random.default_rng(4)


def fractions(seeds: int, rows: int) -> list[Array]:
    under = RNG.integers(0, 3, (seeds, rows)).astype(float)
    return list(np.stack([under * RNG.integers(0, 2, (seeds, rows)), under], -1))


@pytest.mark.parametrize(("seeds", "rows"), [(1, 60), (3, 60), (5, 1)])
def test_a_mean_is_estimated_as_the_comparison_does(seeds: int, rows: int) -> None:
    ours, theirs = RNG.normal(0.5, 0.2, (2, seeds, rows))
    for found, expected in (
        (share(list(ours)), estimate(ours)),
        (share(list(ours), list(theirs)), estimate(ours - theirs)),
    ):
        assert found is not None
        assert found.mean == pytest.approx(expected.mean)
        assert found.by_seed == pytest.approx(expected.by_seed)
        assert found.rows == rows
        noise = 0.08 * (expected.high - expected.low)
        assert found.low == pytest.approx(expected.low, abs=noise)
        assert found.high == pytest.approx(expected.high, abs=noise)


def test_a_share_is_drawn_row_by_row() -> None:
    """Against a bootstrap that copies the rows."""
    ours, theirs = fractions(3, 40), fractions(3, 40)
    both, rng, draws = [np.stack(ours), np.stack(theirs)], np.random.default_rng(1), []
    for _ in range(4000):
        picked, chosen = rng.integers(3, size=3), rng.integers(40, size=40)
        sums = [table[picked][:, chosen].sum((0, 1)) for table in both]
        draws.append(sums[0][0] / sums[0][1] - sums[1][0] / sums[1][1])
    found = share(ours, theirs)
    assert found is not None
    assert found.mean == pytest.approx(
        sum(a[:, 0].sum() for a in ours) / sum(a[:, 1].sum() for a in ours)
        - sum(a[:, 0].sum() for a in theirs) / sum(a[:, 1].sum() for a in theirs)
    )
    low, high = np.percentile(draws, [2.5, 97.5])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.08 * (high - low))


def test_nothing_to_share_is_0_and_no_seeds_are_none() -> None:
    found = share([np.zeros((4, 2))])
    assert found is not None
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert share([]) is None


def test_equal_figures_of_uneven_rows_differ_for_sure_by_nothing() -> None:
    ours = list(RNG.normal(0, 9, (2, 50)))
    found = share(ours, ours)
    assert found is not None
    assert (found.mean, found.low, found.high) == (0, 0, 0)
