"""Run directories that are opened again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from controller.site import Bench

from hpcjf.cluster.local import LocalCluster
from hpcjf.controller.start import opened
from hpcjf.core.lifecycle import Phase, replay
from hpcjf.errors import StudyError
from hpcjf.store import journal
from hpcjf.store.frozen import freeze_study, load_frozen
from hpcjf.store.journal import read_journal


def test_jobs_of_one_scheduler_are_not_given_up_for_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    freeze_study(bench.layout, bench.study)
    bench.controller.emit("controller", generation=1, host="h", pid=1, job_id="", executor="site")
    bench.tick()
    bench.close()
    local = LocalCluster(bench.layout.local_jobs, 1)
    changed = bench.study.model_copy(update={"search": bench.study.search.model_copy(update={"parallel": 7})})
    with pytest.raises(StudyError, match="2 jobs of the executor site"), opened(bench.layout, changed, local):
        pass
    assert load_frozen(bench.layout) == bench.study, "nothing was changed"
    with opened(bench.layout, bench.study, bench.site) as controller:
        assert len(list(controller.state.live())) == 2


def test_a_done_study_stays_done_says_so_and_remembers_who_has_its_jobs(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    freeze_study(bench.layout, bench.study)
    bench.controller.emit("phase", phase=Phase.DONE, reason="test")
    bench.close()
    command = [sys.executable, "-m", "hpcjf.cli", "run", str(bench.layout.root), "--executor", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "the study is done" in done.stdout
    assert load_frozen(bench.layout).cluster.executor == "local"
    assert replay(read_journal(bench.layout.journal)[0]).phase is Phase.DONE


def test_the_journal_is_read_once_and_what_it_lost_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "run")
    freeze_study(bench.layout, bench.study)
    bench.tick()
    bench.close()
    with bench.layout.journal.open("ab") as file:
        file.write(b"torn")
    scan, scans = journal._scan, []
    monkeypatch.setattr(journal, "_scan", lambda *arguments: scans.append(arguments) or scan(*arguments))
    with opened(bench.layout, bench.study, bench.site) as controller:
        assert len(controller.state.trials) == 2
        assert any("4 bytes of an unfinished last record" in text for _, text in controller.state.notes)
    assert len(scans) == 1
