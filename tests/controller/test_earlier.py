"""A warm start: what is taken from another run, what is refused, and that it stays as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from controller.site import Site

from hpcjf.controller.earlier import load_earlier, read_earlier
from hpcjf.controller.start import opened
from hpcjf.errors import StoreError, StudyError
from hpcjf.store.frozen import freeze_study
from hpcjf.store.journal import JournalWriter
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.types import Cause, Fidelity, Purpose

SPACE = {
    "learning_rate": {"type": "real", "low": 1e-6, "high": 1e-2, "log": True},
    "lr_scheduler": {"type": "categorical", "choices": ["constant", "cosine"]},
    "rollouts": {"type": "integer", "low": 2, "high": 8},
}
CONFIG = {"learning_rate": 1e-4, "lr_scheduler": "cosine", "rollouts": 5}


def study(models: dict[str, int] | None = None, space: dict[str, Any] | None = None, **search: Any) -> Study:
    sizes = models or {"s": 100, "m": 400}
    return Study.model_validate(
        {
            "study": {"training_seeds": 1, "direction": search.pop("direction", "maximize")},
            "models": [{"name": n, "path": n, "parameters": size} for n, size in sizes.items()],
            "recipe": CONFIG,
            "space": SPACE if space is None else space,
            "budget": {"min": 10, "max": 10},
            "search": {"max_trials": 4, **search},
        }
    )


def write_run(root: Path, of: Study) -> RunLayout:
    """An unfinished run: trials 0 to 4 ended as 1, 0, 4, 2; 2 by the cluster's doing, 3 still runs, 4 was a final."""
    layout = RunLayout(root)
    layout.create()
    freeze_study(layout, of)
    names = [model.name for model in of.models]
    with JournalWriter(layout.journal) as journal:
        journal.append({"kind": "study", "time": 0.0, "run_id": "beef", "name": "n"})
        for number in range(5):
            trial = {"config_id": f"c{number}", "config": CONFIG, "model": names[number % 2], "steps": 10}
            purpose = Purpose.SEARCH if number < 4 else Purpose.FINAL
            why = {"reason": "test"}
            journal.append(
                {"kind": "trial", "time": 1.0, "number": number, "training_seed": 0, "purpose": purpose, "why": why}
                | trial
            )
            journal.append({"kind": "attempt", "time": 1.0, "trial": number, "attempt": 1, "name": f"a{number}"})
        for number in (1, 0, 4, 2):
            cause = Cause.LOST if number == 2 else Cause.COMPLETED
            figures = {"step": 10, "start_step": 0, "score": 0.1 * number, "seconds": 8.0, "startup_seconds": 2.0}
            more = {"kl": 0.25, "tokens": 30.0, "detail": "", "retry": False}
            end = {"kind": "ended", "time": 2.0, "trial": number, "attempt": 1, "cause": cause}
            journal.append(end | figures | more)
    return layout


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    return write_run(tmp_path / "earlier", study())


def test_search_trials_come_in_the_order_of_their_ends_without_the_clusters_faults(
    run: RunLayout, tmp_path: Path
) -> None:
    earlier = read_earlier(study(warm_start=str(run.root)), tmp_path / "run")
    assert earlier is not None
    assert (earlier.run_id, earlier.models) == ("beef", {})
    assert [o.trial for o in earlier.observations] == [1, 0]
    first = earlier.observations[0]
    assert (first.config, first.fidelity, first.score, first.kl) == (CONFIG, Fidelity("m", 10), 0.1, 0.25)
    assert (first.seconds, first.startup_seconds) == (8.0, 2.0)
    assert read_earlier(study(), tmp_path / "run") is None


@pytest.mark.parametrize(
    ("ours", "names", "models"),
    [
        ({"s": 100, "m": 400}, ["m", "s"], {}),
        ({"m": 400}, ["m", "s"], {"s": 100}),
        ({"s": 100, "m": 500}, ["m-earlier", "s"], {"m-earlier": 400}),
        ({"m-earlier": 7, "m": 500}, ["m-earlier-earlier", "s"], {"m-earlier-earlier": 400, "s": 100}),
    ],
)
def test_a_model_keeps_its_name_unless_ours_of_that_name_has_another_size(
    run: RunLayout, tmp_path: Path, ours: dict[str, int], names: list[str], models: dict[str, int]
) -> None:
    earlier = read_earlier(study(ours, warm_start=str(run.root)), tmp_path / "run")
    assert earlier is not None
    assert [o.fidelity.model for o in earlier.observations] == names
    assert earlier.models == models


def test_in_a_deterministic_study_the_earlier_costs_are_work_for_the_same_target(
    run: RunLayout, tmp_path: Path
) -> None:
    earlier = read_earlier(study({"l": 1000}, warm_start=str(run.root), deterministic=True), tmp_path / "run")
    assert earlier is not None
    assert [o.seconds for o in earlier.observations] == [10 * 30 * 0.4, 10 * 30 * 0.1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"space": SPACE | {"rollouts": {"type": "integer", "low": 2, "high": 9}}}, "space.rollouts differs"),
        ({"space": {n: d for n, d in SPACE.items() if n != "lr_scheduler"}}, "space.lr_scheduler differs"),
        (
            {"space": {"clip_range": {"type": "real", "low": 0.1, "high": 0.3}}, "direction": "minimize"},
            "clip_range, space.learning_rate, space.lr_scheduler, space.rollouts, study.direction differ;",
        ),
    ],
)
def test_another_question_is_refused_with_what_differs(
    run: RunLayout, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(StudyError, match=said) as caught:
        read_earlier(study(warm_start=str(run.root), **changes), tmp_path / "run")
    assert caught.value.where == "search.warm_start"
    assert caught.value.exit_code == 2


def test_the_order_of_the_dimensions_does_not_matter(run: RunLayout, tmp_path: Path) -> None:
    assert read_earlier(study(space=dict(reversed(SPACE.items())), warm_start=str(run.root)), tmp_path) is not None


@pytest.mark.parametrize("fault", ["absent", "empty", "damaged", "foreign", "itself"])
def test_what_cannot_be_read_is_an_error_of_the_study(run: RunLayout, tmp_path: Path, fault: str) -> None:
    root = run.root
    if fault == "absent":
        root = tmp_path / "nowhere"
    elif fault == "empty":
        run.study.unlink()
    elif fault == "damaged":
        run.study.write_text("study: [")
    elif fault == "foreign":
        root.chmod(0o777)
    said = {"itself": "its own warm start", "damaged": "damaged", "foreign": "can write it"}.get(
        fault, "not a run directory"
    )
    with pytest.raises(StudyError, match=said) as caught:
        read_earlier(
            study(warm_start=str(root)), root.parent / "." / root.name if fault == "itself" else tmp_path / "run"
        )
    assert caught.value.where == "search.warm_start"
    assert caught.value.fix


def test_what_was_frozen_is_neither_changed_nor_lost_with_the_other_run(run: RunLayout, tmp_path: Path) -> None:
    mine, layout = study(warm_start=str(run.root)), RunLayout(tmp_path / "run")
    with opened(layout, mine, Site()):
        pass
    frozen = load_earlier(layout, mine)
    assert frozen == read_earlier(mine, layout.root)
    assert os.stat(layout.earlier).st_mode & 0o777 == 0o600
    shutil.rmtree(run.root)
    with opened(layout, mine, Site()):
        pass
    assert load_earlier(layout, mine) == frozen


def test_a_warm_start_is_settled_once_the_study_has_begun(run: RunLayout, tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    with opened(layout, study(), Site()):
        pass
    with (
        pytest.raises(StudyError, match=r"search\.warm_start differs"),
        opened(layout, study(warm_start=str(run.root)), Site()),
    ):
        pass
    assert not layout.earlier.exists()


def test_a_warm_start_that_fails_leaves_no_study_behind(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    with pytest.raises(StudyError), opened(layout, study(warm_start=str(tmp_path / "nowhere")), Site()):
        pass
    assert not layout.study.exists()
    with opened(layout, study(), Site()):
        pass


def test_a_frozen_file_that_was_lost_is_told(run: RunLayout, tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "run")
    mine = study(warm_start=str(run.root))
    with opened(layout, mine, Site()):
        pass
    layout.earlier.unlink()
    with pytest.raises(StoreError, match=r"earlier\.json"):
        load_earlier(layout, mine)
