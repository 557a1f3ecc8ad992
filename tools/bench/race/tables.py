"""The figures of finished races as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from race.cases import BLOCKS, Case
from race.figures import (
    FAITHFUL,
    MISLEADING,
    MISLED_AT,
    OURS,
    Board,
    best_or_tied,
    misled,
    near_proxies,
    price_of_misleading,
    typical,
)
from race.noise import Choice
from race.outcome import Interval, Outcome, interval
from race.stopping import SETTLED_ON, Measured, Rates

BASELINES = ("random", "bohb")
"""Those whose final score is the goal."""


def races(board: Board, cases: Sequence[Case]) -> Iterator[str]:
    """All tables of the races."""
    yield from _against(board, cases)
    yield "## By method\n"
    yield "Rank by final regret among the methods that ran on every problem; regret averaged over the logarithm of"
    yield "cost, percent of the score's span. Means over problems and seeds [95 % bootstrap interval].\n"
    ranks = board.ranks([method for method in board.methods if all(board.of(p, method) for p in board.problems)])
    areas = {m: [o.regret_area for p in board.problems for o in board.of(p, m)] for m in board.methods}
    rows = ([m, str(ranks.get(m, "")), _percent(areas[m])] for m in board.methods)
    yield from _table(["method", "rank", "regret area"], rows)
    yield "## Final regret at equal cost\n"
    yield "Percent of the score's span: mean over seeds [95 % bootstrap interval].\n"
    yield from _grid(board.methods, board.problems, lambda m, p: _percent([o.regret for o in board.of(p, m)]))
    yield "## Cost to reach a baseline's final score\n"
    yield "How many times less it costs ours than the baseline: median over seeds, 0 where ours mostly does not get"
    yield "there (share of the seeds in which it does).\n"
    yield from _grid(board.problems, BASELINES, lambda p, b: _sooner(board, p, b))
    yield from _of_surfaces(board, near_proxies(board))


def _against(board: Board, cases: Sequence[Case]) -> Iterator[str]:
    found = {other: board.verdicts(cases, OURS, other) for other in board.opponents}
    level = best_or_tied(board, cases, OURS, board.opponents)
    yield "## Won, tied and lost\n"
    yield f"`{OURS}` is best or tied against all at once in {sum(level.values())} of {len(level)} cases."
    yield f"A comparison rests on the seeds that both methods ran, {_seeds(board, cases)}. One by one:\n"
    counts = {other: Counter(each.values()) for other, each in found.items() if each}
    rows = ([other, *(str(count[word]) for word in ("win", "tie", "loss"))] for other, count in counts.items())
    yield from _table(["against", "won", "tied", "lost"], rows)
    by_case = ([" ".join(c), *(_those(found, c, word) for word in ("loss", "tie"))] for c in level)
    yield from _table(["case", "lost to", "tied with"], by_case)


def _seeds(board: Board, cases: Sequence[Case]) -> str:
    """How many seeds of a case a comparison rests on."""
    counts = {
        len(board.pairs(case.problem, OURS, other, BLOCKS[case.block])) for case in cases for other in board.opponents
    }
    least, most = min(counts - {0}, default=0), max(counts, default=0)
    return f"{least} a case" if least == most else f"{least} to {most} a case"


def _of_surfaces(board: Board, near: Sequence[str]) -> Iterator[str]:
    yield "## Average time per trial on the RL surfaces\n"
    yield "All cost (start-up, probes, the winner's full training) over distinct configurations, in full trainings of"
    yield f"the target with the recipe; in brackets how many times that of `{OURS}`.\n"
    yield from _grid(board.methods, near, lambda m, p: _time(board, p, m))
    yield "## What each part is worth\n"
    yield "On the RL surfaces: means over problems and seeds; in the last columns how many times sooner it has the"
    yield "final score of a baseline (geometric mean over problems of the median over seeds).\n"
    variants = [method for method in board.methods if method.startswith(OURS)]
    head = ["method", "final regret", "regret area", *(f"sooner than {baseline}" for baseline in BASELINES)]
    yield from _table(head, ([variant, *_worth(board, near, variant)] for variant in variants))
    yield "## A misleading proxy\n"
    yield f"Regret at the cost of {MISLED_AT} full trainings of the target, percent of the span: median over seeds"
    yield "(their number).\n"
    yield from _grid(board.methods, (MISLEADING, FAITHFUL), lambda m, p: _misled(board.of(p, m)))
    price = price_of_misleading(board)
    if price:
        yield f"To be as good as with {MISLEADING} costs `{OURS}` {price} full trainings less with {FAITHFUL}.\n"


def stopping(measured: Sequence[Measured]) -> Iterator[str]:
    """The rules' rates."""
    yield "## Stopping rules on recorded curves\n"
    yield "False stops: of the trials that would have ended in the top quartile. Steps saved: of the other trials."
    yield '`default` are a study\'s defaults, chosen before any of these curves was recorded; "from X" are thresholds'
    yield f"that were best on X. The JSON's figures are those of the defaults on the tasks other than {SETTLED_ON}.\n"
    yield from _table(
        ["rule", "task", "thresholds", "false stops", "rate [exact 95 % interval]", "steps saved"],
        ([rule, task, thresholds or "default", *_rates(each)] for rule, task, thresholds, each in measured),
    )


def noise(measured: Sequence[Choice]) -> Iterator[str]:
    """What full runs can tell."""
    yield "## What the noise lets anybody know\n"
    yield "Regret, percent of the span, of the configuration chosen after N full runs of the target that all lie in the"
    yield "truly best quarter of the space, which no method is given: mean over seeds.\n"
    yield from _table(
        ["target of", "full runs", "highest score", "highest mean of our surrogate", "truly best of them"],
        ([c.target, str(c.runs), *(f"{100 * each:.3g}" for each in c[2:])] for c in measured),
    )


def scale(measured: Mapping[str, float]) -> Iterator[str]:
    """What a large study costs."""
    yield "## A simulated study of 1,000 trials\n"
    yield from _table(["key", "figure"], ([f"`{key}`", f"{value:.4g}"] for key, value in measured.items()))


def _grid(rows: Sequence[str], columns: Sequence[str], cell: Callable[[str, str], str]) -> Iterator[str]:
    lines = ([row, *(cell(row, column) for column in columns)] for row in rows)
    yield from _table(["", *columns], (line for line in lines if any(line[1:])))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def _percent(values: Sequence[float]) -> str:
    return str(Interval(*(100 * each for each in interval(values)))) if values else ""


def _sooner(board: Board, problem: str, baseline: str) -> str:
    ratio, share = board.cost_ratio(problem, OURS, baseline), board.reached(problem, OURS, baseline)
    return "" if ratio is None or share is None else f"{ratio:.3g} ({share:.0%})"


def _time(board: Board, problem: str, method: str) -> str:
    ratio = board.time_ratio(problem, OURS, method)
    times = [o.time_per_trial / o.full for o in board.of(problem, method)]
    return f"{np.mean(times):.3g}" + (f" ({ratio:.3g})" if ratio else "") if times else ""


def _worth(board: Board, problems: Sequence[str], method: str) -> list[str]:
    known = [outcome for problem in problems for outcome in board.of(problem, method)]
    ratios = [typical(board.cost_ratio(p, method, baseline) for p in problems) for baseline in BASELINES]
    means = [_percent([o.regret for o in known]), _percent([o.regret_area for o in known])]
    return means + ["" if ratio is None else f"{ratio:.3g}" for ratio in ratios]


def _misled(known: Sequence[Outcome]) -> str:
    regret = misled(known)
    return "" if regret is None else f"{100 * regret:.3g} ({len(known)})"


def _rates(each: Rates) -> list[str]:
    low, high = each.bounds
    rate = f"{each.false_stop_rate:.1%} [{low:.1%}, {high:.1%}]"
    return [f"{each.stopped} of {each.good}", rate, f"{each.steps_saved:.1%}"]


def _those(found: Mapping[str, Mapping[Case, str]], case: Case, word: str) -> str:
    return ", ".join(other for other, each in found.items() if each.get(case) == word)
