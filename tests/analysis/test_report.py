from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from builder import RECIPE, START, RunBuilder, demo
from plotly.offline import get_plotlyjs

from hpcjf.analysis.load import load_run
from hpcjf.analysis.report import headline, main, render, write_report
from hpcjf.errors import StoreError
from hpcjf.types import Cause, Config

WINNER: Config = RECIPE | {"learning_rate": 1e-5}
FIGURES = {"final", "final_curves", "history", "parallel", "parameters", "pareto", "curves", "timeline", "scatter"}
HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"
LOADING = {"img", "iframe", "link", "object", "embed", "source", "video", "audio", "base", "form", "frame", "applet"}


class Page(HTMLParser):
    """The page's elements, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data
        else:
            self.words.append(data)

    def figures(self) -> dict[str, Any]:
        names = [attrs["id"] for tag, attrs in self.tags if attrs.get("type") == "application/json"]
        return {
            str(name).removeprefix("figure-"): json.loads(text)
            for name, text in zip(names, (s for s in self.scripts if s.startswith("{")), strict=True)
        }


def page(run: RunBuilder | Path, at: float = 0) -> Page:
    root = run.layout.root if isinstance(run, RunBuilder) else run
    return Page(render(load_run(root), START + at))


@pytest.fixture(scope="module")
def demo_page(demo_root: Path) -> Page:
    return page(demo_root)


def test_the_whole_study_fills_every_part(demo_page: Page) -> None:
    assert set(demo_page.figures()) == FIGURES
    assert "The winner beats the recipe on the test rows." in demo_page.text
    assert "interval over 3 training seeds and 200 test prompts" in demo_page.text
    assert "Problems" not in demo_page.text
    ids = {attrs.get("id") for _, attrs in demo_page.tags}
    assert {"winner", "trials", "cost", "transfer", "settings"} <= ids


def test_the_numbers_of_the_head_are_those_of_the_results(run: RunBuilder) -> None:
    for seed in (1, 2):
        run.final(RECIPE, "recipe", seed, 0, [1, 0, 0, 0], base=[0, 0, 0, 0])
        run.final(WINNER, "final", seed, 0, [1, 1, 1, 1])
    text = page(run).text
    assert "winner 1.000 95 %: 1.000 … 1.000" in text
    assert re.search(r"recipe 0\.250 95 %: 0\.000 … 0\.\d", text)
    assert "difference, paired +0.750" in text
    assert "base model, untrained 0.000" in text


def test_every_trial_has_a_row_and_every_column_a_heading(demo_root: Path, demo_page: Page) -> None:
    html = render(load_run(demo_root), START)
    table = re.findall(r'<table class="sortable">(.*?)</table>', html, re.S)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    assert len(rows) == 1 + len(load_run(demo_root).state.trials)
    assert {row.count("<td") for row in rows[1:]} == {rows[0].count("<th")}


def test_the_winner_is_yaml_that_a_study_takes(run: RunBuilder) -> None:
    run.final(WINNER, "final", 1, 0, [1, 0])
    [block] = re.findall(r'<pre class="copy">(# demo.*?)</pre>', render(load_run(run.layout.root), START), re.S)
    assert yaml.safe_load(block) == {"algorithm": dict(WINNER)}


def test_nothing_is_loaded_from_elsewhere(demo_page: Page) -> None:
    for tag, attrs in demo_page.tags:
        assert tag not in LOADING
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    own = [text for text in demo_page.scripts if len(text) < 1_000_000]
    assert not any(re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest", text) for text in own)


def test_the_page_forbids_itself_the_network(demo_page: Page) -> None:
    [policy] = [attrs["content"] or "" for _, attrs in demo_page.tags if "http-equiv" in attrs]
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_the_library_is_inlined_once(demo_root: Path) -> None:
    html = render(load_run(demo_root), START)
    assert html.count(get_plotlyjs()[:200]) == 1
    assert html.count("sendChartToCloud") == get_plotlyjs().count("sendChartToCloud") + 1


def test_figures_say_units_and_places(demo_page: Page) -> None:
    figures = demo_page.figures()
    for name in ("final", "history", "parameters", "curves", "final_curves", "timeline"):
        axes = [axis for key, axis in figures[name]["layout"].items() if key.startswith("xaxis")]
        assert any(axis.get("title", {}).get("text") for axis in axes), name


def test_the_head_says_how_the_search_was_done(tmp_path: Path, demo_page: Page) -> None:
    assert "jfhpo search (joint acquisition), robust stopping" in demo_page.text
    search = {"acquisition": "paper", "deterministic": True, "warm_start": "/runs/first", "kl_ceiling": 0.1}
    text = page(RunBuilder(tmp_path / "run", {"search": search})).text
    assert "jfhpo search (paper acquisition), deterministic, warm start from /runs/first, KL at most 0.1," in text
    text = page(RunBuilder(tmp_path / "other", {"search": {"method": "bohb"}})).text
    assert "bohb search, robust stopping" in text


def test_a_proxy_that_misleads_is_a_banner(run: RunBuilder) -> None:
    for place in range(5):
        config = RECIPE | {"rollouts": 2 + place}
        run.job(config, "small", 10, 200 * place, gain=0.1 * place)
        run.job(config, "large", 10, 200 * place + 100, gain=0.5 - 0.1 * place)
    found = page(run)
    [banner] = re.findall(r'<div class="banner">(small ranks.*?)</div>', render(load_run(run.layout.root), START))
    assert "what wins there says little here." in banner
    assert "Spearman -1.00 [-1.00, -1.00], Kendall -1.00 [-1.00, -1.00] over 5 configurations" in found.text
    assert "scatter" in found.figures()


def test_the_front_is_a_table_of_the_target(demo_root: Path, demo_page: Page) -> None:
    assert re.search(r"On large \d+ of \d+ trials are on the front\.", demo_page.text)
    assert "KL, nats/token" in demo_page.text


def test_a_run_without_trials(run: RunBuilder) -> None:
    found = page(run)
    assert found.figures() == {}
    assert "No trial has been proposed yet." in found.text
    assert "No configuration has a score yet." in found.text
    assert "The search is still running" in found.text


def test_a_journal_that_is_not_there_yet(run: RunBuilder) -> None:
    run.layout.journal.unlink()
    assert "No trial has been proposed yet." in page(run).text


def test_one_trial_that_waits(run: RunBuilder) -> None:
    run.submit(run.trial(RECIPE, "small", 10))
    found = page(run)
    assert "running" in found.text
    assert set(found.figures()) == {"timeline"}


def test_one_trial_that_trains(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial, started=10)
    run.trace(trial, 0, 4)
    found = page(run)
    assert "– → 4 / 10" in found.text
    assert set(found.figures()) == {"timeline", "curves"}


def test_one_trial_that_ended(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    assert set(page(run).figures()) == {"history", "curves", "timeline"}


def test_only_failures(run: RunBuilder) -> None:
    for number in range(3):
        trial = run.trial(RECIPE | {"rollouts": 2 + number}, "small", 10)
        run.submit(trial, started=1)
        run.end(trial, 20, 0, cause=Cause.FAILED, seconds=0, detail="no module named thing")
    run.phase(30, "stopped", "the first 3 trials failed")
    found = page(run)
    assert set(found.figures()) == {"history", "timeline"}
    assert "The study was stopped (the first 3 trials failed) and can be resumed." in found.text
    assert found.text.count("no module named thing") == 3
    assert "time per trial –" in found.text


def test_a_search_without_finals_says_so(run: RunBuilder) -> None:
    run.job(RECIPE, "small", 10, 0)
    run.job(WINNER, "small", 10, 200)
    run.incumbent(300, WINNER, 0.61)
    found = page(run, at=300 + 7200)
    assert (
        "The search is still running (0 jobs in flight): figures are as of now. Last journal entry 2.0 h ago."
        in found.text
    )
    assert "has not been compared with the recipe on the test rows yet" in found.text
    assert "Best validation score so far: 0.610" in found.text
    assert "Best configuration so far" in found.text
    assert set(found.figures()) == FIGURES - {"final", "final_curves", "scatter"}


@pytest.mark.parametrize(("silence", "doubted"), [(600, False), (7200, True)])
def test_a_long_silence_raises_the_question_of_the_controller(run: RunBuilder, silence: float, doubted: bool) -> None:
    run.submit(run.trial(RECIPE, "small", 10))
    assert ("Perhaps no controller is at work any more" in page(run, at=silence).text) is doubted


def test_finals_that_still_run_say_so(run: RunBuilder) -> None:
    run.phase(0, "final", "24 trials")
    run.final(RECIPE, "recipe", 1, 0, [1, 0])
    run.submit(run.trial(WINNER, "large", 90, seed=1, purpose="final"))
    found = page(run)
    assert "the final comparison is still running (1 jobs in flight)" in found.text
    assert "recipe 0.500" in found.text


def test_a_study_that_is_done_has_no_banner(demo_page: Page) -> None:
    assert "banner" not in {attrs.get("class") for _, attrs in demo_page.tags}


def test_the_recipe_as_winner(run: RunBuilder) -> None:
    run.incumbent(0, RECIPE, 0.5)
    run.final(RECIPE, "recipe", 1, 0, [1, 0, 1, 1])
    run.phase(900, "done")
    found = page(run)
    assert "the winner is the recipe itself" in found.text
    assert "winner = recipe 0.750" in found.text
    assert "difference" not in found.text
    assert found.figures()["final"]["data"][0]["y"] == ["recipe = winner"]


def test_no_clear_difference_is_not_called_a_win(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [1, 0] * 10)
    run.final(WINNER, "final", 1, 0, [0, 1] * 9 + [1, 1])
    found = page(run)
    assert "No clear difference between winner and recipe" in found.text
    assert "beats" not in found.text


def test_a_winner_that_loses_is_said_to_lose(run: RunBuilder) -> None:
    run.final(RECIPE, "recipe", 1, 0, [1, 1, 1, 1])
    run.final(WINNER, "final", 1, 0, [0, 0, 0, 0])
    assert "The winner is worse than the recipe" in page(run).text


def test_a_dead_controllers_result_is_shown_as_waiting(run: RunBuilder) -> None:
    trial = run.trial(RECIPE, "small", 10)
    run.submit(trial)
    run.result(trial, 10, score=0.4)
    assert "its result waits for a controller" in page(run).text


def test_damaged_files_are_listed_under_problems(run: RunBuilder) -> None:
    good, bad = run.job(RECIPE, "small", 10, 0), run.job(WINNER, "small", 10, 0)
    run.layout.attempt(bad, 1).trace.write_bytes(b"\0" * 900)
    run.layout.attempt(bad, 1).result.write_text("{")
    found = page(run)
    assert "Problems (2)" in found.text
    assert "trials/0001/attempt-01/result.json" in found.text
    assert "trials/0001/attempt-01/trace.h5" in found.text
    assert good != bad
    assert "curves" in found.figures()


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    config: Config = {"learning_rate": 1e-6, "lr_scheduler": HOSTILE, HOSTILE: 3}
    models = [{"name": "small", "path": HOSTILE}, {"name": "large", "path": "x"}]
    run = RunBuilder(tmp_path / HOSTILE.replace("/", "_"), {"models": models, "recipe": {"learning_rate": HOSTILE}})
    run.event("note", 1, text=HOSTILE)
    run.event("controller", 1, generation=2, host=HOSTILE)
    for number in range(2):
        trial = run.job(config | {"learning_rate": 1e-6 * (1 + number)}, "small", 10, 0)
        run.job(config | {HOSTILE: 4 + number}, "small", 10, 0)
    stopped = run.trial(config, "small", 90)
    run.submit(stopped)
    run.trace(stopped, 0, 12)
    run.stopping(stopped, 5, Cause.STOPPED_KL, HOSTILE)
    run.end(stopped, 9, 12, score=0.3, cause=Cause.STOPPED_KL, detail=HOSTILE)
    run.incumbent(10, config, 0.5)
    run.final(config, "final", 1, 20, [1, 0])
    run.layout.attempt(trial, 1).result.write_text(HOSTILE)
    run.phase(30, "stopped", HOSTILE)
    html = render(load_run(run.layout.root), START)
    found = Page(html)
    assert set(found.figures()) == FIGURES
    assert not {"img"} & {tag for tag, _ in found.tags}
    assert len([tag for tag, _ in found.tags if tag == "script"]) == len(FIGURES) + 2
    assert "alert(1)</script>" not in html
    assert found.text.count("alert(1)") > 10


def test_figure_texts_are_escaped_for_plotly(run: RunBuilder) -> None:
    for number in range(2):
        trial = run.job(RECIPE | {"lr_scheduler": f"<a href='javascript:x'>{number}"}, "small", 10, 0)
    stopped = run.trial(RECIPE, "small", 90)
    run.submit(stopped)
    run.trace(stopped, 0, 12)
    run.stopping(stopped, 5, Cause.STOPPED_KL, "<a href='javascript:y'>")
    run.end(stopped, 9, 12, score=0.3, cause=Cause.STOPPED_KL)
    assert trial == 1
    for name, figure in page(run).figures().items():
        assert "<a" not in json.dumps(figure), name


def test_the_report_lands_in_the_run_for_its_owner_alone(run: RunBuilder) -> None:
    path = write_report(run.layout.root)
    assert path == run.layout.root / "report.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_report(run.layout.root) == path


def test_the_report_can_go_elsewhere_from_a_run_that_was_moved(run: RunBuilder, tmp_path: Path) -> None:
    run.job(RECIPE, "small", 10, 0)
    moved = tmp_path / "moved"
    os.rename(run.layout.root, moved)
    path = write_report(moved, tmp_path / "out.html")
    assert "curves" in Page(path.read_text()).figures()
    assert not (moved / "report.html").exists()


def test_the_headline_gives_the_figures(demo_root: Path) -> None:
    lines = headline(demo_root).splitlines()
    assert lines[0].startswith("The winner")
    assert [line.split()[0] for line in lines[1:4]] == ["winner", "recipe", "difference"]


def test_it_does_not_change_the_run(run: RunBuilder, tmp_path: Path) -> None:
    run.job(RECIPE, "small", 10, 0)

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run.layout.root.rglob("*") if path.is_file()}

    before = files()
    write_report(run.layout.root, tmp_path / "out.html")
    assert files() == before


def test_a_child_process_writes_it_too(run: RunBuilder) -> None:
    command = [sys.executable, "-m", "hpcjf.analysis.report", str(run.layout.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    first, *_, last = done.stdout.splitlines()
    assert last == f"report: {run.layout.root / 'report.html'}"
    assert first == "No configuration has a score yet."


def test_the_child_process_loads_no_heavy_package() -> None:
    heavy = ("torch", "transformers", "skopt", "pandas")
    code = f"import sys, hpcjf.analysis.report; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_no_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError):
        write_report(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "not a run directory" in capsys.readouterr().err
    assert main([]) == 2


@pytest.mark.full
def test_a_thousand_trials_stay_small_and_usable(tmp_path: Path) -> None:
    demo(tmp_path / "run", 460)
    path = write_report(tmp_path / "run")
    found = Page(path.read_text())
    assert len(load_run(tmp_path / "run").state.trials) >= 1000
    assert path.stat().st_size < 20e6
    assert len({line.get("legendgroup") for line in found.figures()["curves"]["data"]}) == 30
    assert "Of 460 configurations with a trace only 30 are drawn" in found.text
