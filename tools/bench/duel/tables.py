"""The figures as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from duel.figures import LARGEST_DIFFERENCE, Agreement, Interval, ratio, steps_per_cpu_s
from duel.meter import Reading
from duel.pairs import Pair

Figure = Callable[[Reading], float]
SPEED, MEMORY, IMPORT = "steps per CPU-s", "peak memory, MB", "import, CPU-s"
FIGURES: dict[str, Figure] = {
    SPEED: steps_per_cpu_s,
    MEMORY: lambda reading: reading.peak_mb,
    IMPORT: lambda reading: reading.import_cpu_s,
    "to the first step, CPU-s": lambda reading: reading.ready_cpu_s,
    "checkpoint, MB": lambda reading: reading.checkpoint_bytes / 2**20,
    "tokens a completion": lambda reading: float(np.mean(reading.lengths[1:])),
}
TARGETS = {"tiny": 2.0, "smollm2": 1.2}
"""Least ratio of the steps per CPU-second, ours over TRL's."""


def speed(name: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """One workload's table."""
    yield f"| {name} | ours | TRL | ours / TRL |"
    yield "|---|---|---|---|"
    for label, figure in FIGURES.items():
        ours, others = [figure(pair.ours) for pair in pairs], [figure(pair.trl) for pair in pairs]
        yield f"| {label} | {_shown(ours)} | {_shown(others)} | {ratio(ours, others)} |"
    yield ""


def curves(found: Agreement, seeds: int) -> Iterator[str]:
    """What two sets of curves have in common."""
    yield f"Reward curves over {seeds} seeds: mean reward {found.ours:.4f} (ours) and {found.trl:.4f} (TRL), the gain"
    yield f"of both together {found.gain:.4f}. The areas differ by {found.difference} of the gain: they"
    yield f"{'agree' if found.holds else 'do not agree'} (at most {LARGEST_DIFFERENCE}, and 0 in the interval).\n"


def of_workload(name: str, pairs: Sequence[Pair]) -> dict[str, Interval]:
    """Ratios of one workload, under the keys of the JSON."""
    keys = {SPEED: "ratio", MEMORY: "rss_ratio", IMPORT: "import_ratio"}
    return {
        f"{name}_{key}": ratio([FIGURES[label](p.ours) for p in pairs], [FIGURES[label](p.trl) for p in pairs])
        for label, key in keys.items()
    }


def as_json(ratios: Mapping[str, Interval], agreed: Agreement | None) -> dict[str, float | bool | None]:
    """Ratios with their bounds; ``rss_ratio`` and ``import_ratio`` are the largest of all workloads."""
    found: dict[str, float | bool | None] = {}
    for key, each in ratios.items():
        bounds = (("low", each.low), ("high", each.high))
        found |= {key: each.mean} | {f"{key}_{end}": None if np.isnan(value) else value for end, value in bounds}
    for kind in ("rss_ratio", "import_ratio"):
        known = [each.mean for key, each in ratios.items() if key.endswith(kind)]
        found |= {kind: max(known)} if known else {}
    if agreed is not None:
        found |= {"curve_difference": agreed.difference.mean, "curves_agree": agreed.holds}
    return found


def _shown(values: Sequence[float]) -> str:
    """Their mean to three digits, without an exponent."""
    return f"{float(f'{np.mean(values):.3g}'):g}"
