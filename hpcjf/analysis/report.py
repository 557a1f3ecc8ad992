"""``hpcjf report RUN``: one HTML file that needs no network. Also ``python -m hpcjf.analysis.report RUN [OUT]``.

The controller starts it as a child process, which keeps plotly out of its own memory.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from hpcjf.analysis import evaluation, tables
from hpcjf.analysis.compare import Estimate, compare
from hpcjf.analysis.curves import final_curves, search_curves
from hpcjf.analysis.figures import (
    final_scores,
    hyperparameters,
    incumbent_history,
    parallel_coordinates,
    pass_curves,
)
from hpcjf.analysis.load import RunData, load_run
from hpcjf.analysis.pareto import by_model, trade_off
from hpcjf.analysis.savings import savings
from hpcjf.analysis.timeline import job_timeline
from hpcjf.analysis.transfer import scatter, sentence, transfer, warning
from hpcjf.analysis.words import clock, duration, score_text, search_words
from hpcjf.core.ranks import LOW
from hpcjf.errors import HpcjfError
from hpcjf.store.atomic import write_text
from hpcjf.store.layout import RunLayout


def write_report(root: Path, out: Path | None = None) -> Path:
    """Write the report to ``out``, or into the run directory. Raises StoreError where ``root`` is no run."""
    path = out or RunLayout(root).report
    write_text(path, render(load_run(root), time.time()))
    return path


def headline(root: Path) -> str:
    """The comparison in plain text: a sentence, and a line of figures each for winner, recipe and difference."""
    run = load_run(root)
    result = compare(run)
    lines = [tables.verdict(result, run.study.study.direction)[0]]
    for name, sign in (("winner", ""), ("recipe", ""), ("difference", "+"), ("base", "")):
        seen: Estimate | None = getattr(result, name)
        if seen is not None:
            lines.append(f"  {name:<10} {seen.mean:{sign}.3f}  [{seen.low:{sign}.3f}, {seen.high:{sign}.3f}]")
    if result.recipe is not None:
        lines.append(f"  95 % {result.recipe.spans}")
    return "\n".join(lines)


def render(run: RunData, now: float) -> str:
    """The page, ``now`` in unix seconds."""
    environment = Environment(
        loader=PackageLoader("hpcjf.analysis", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(score=score_text, duration=duration)
    page = environment.get_template("report.html.j2")
    return page.render(**_content(run, now))


def _content(run: RunData, now: float) -> dict[str, Any]:
    result = compare(run)
    heads, rows = tables.trial_table(run)
    checks, groups, measured = transfer(run), by_model(run), evaluation.evaluate(run)
    return {
        "study": run.study,
        "state": run.state,
        "search": search_words(run.study.search),
        "made": clock(now),
        "banner": tables.banner(run, now),
        "result": result,
        "verdict": tables.verdict(result, run.study.study.direction),
        "winner_yaml": tables.winner_yaml(run, result),
        "savings": savings(run.state, run.study),
        "heads": heads,
        "rows": rows,
        "figures": _figures(run, final_scores(result), scatter(run, checks), pass_curves(measured)),
        "evaluation": measured and evaluation.table(measured),
        "change": measured.change if measured else "",
        "evaluation_notes": measured.notes if measured else (),
        "transfer": [(sentence(check), warning(check)) for check in checks],
        "low": LOW,
        "front": tables.front_table(*next(iter(groups.items()))) if groups else None,
        "settings": tables.settings_yaml(run),
        "problems": run.problems,
        "notes": [(clock(moment), text) for moment, text in run.state.notes],
        "environment": tables.environment(run),
        "command": f"hpcjf report {shlex.quote(run.root.name or '.')}",
        "plotly": Markup(get_plotlyjs()),  # noqa: S704 - the library's own file
    }


def _figures(
    run: RunData, final: go.Figure | None, pairs: go.Figure | None, passes: go.Figure | None
) -> dict[str, Any]:
    """By place in the page: the figure as JSON, and a sentence on what it leaves out."""
    curves, finals = search_curves(run), final_curves(run)
    found = {
        "final": (final, ""),
        "final_curves": (finals and finals.figure, ""),
        "history": (incumbent_history(run), ""),
        "parallel": (parallel_coordinates(run), ""),
        "parameters": (hyperparameters(run), ""),
        "curves": (curves and curves.figure, curves.left_out if curves else ""),
        "timeline": (job_timeline(run), ""),
        "scatter": (pairs, ""),
        "passes": (passes, ""),
        "pareto": (trade_off(run), ""),
    }
    return {name: (_json(figure), text) for name, (figure, text) in found.items() if figure is not None}


def _json(figure: go.Figure) -> Markup:
    """JSON that cannot end the script element it stands in, whatever plotly's own encoder does."""
    text = figure.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704 - no markup is left in it


def main(arguments: list[str]) -> int:
    """``RUN [OUT]``; says where the report is."""
    if len(arguments) not in (1, 2):
        print("usage: python -m hpcjf.analysis.report RUN [OUT]", file=sys.stderr)
        return 2
    try:
        root = Path(arguments[0])
        print(headline(root))
        print(f"report: {write_report(root, Path(arguments[1]) if len(arguments) > 1 else None)}")
    except HpcjfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
