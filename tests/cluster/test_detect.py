"""Which scheduler is chosen, and that the choice says why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpcjf.cluster.detect import detect
from hpcjf.errors import PermanentClusterError, TransientClusterError

UP = "Slurmctld(primary) at head1 is UP\n"
DOWN = "Slurmctld(primary) at head1 is DOWN\n"


@pytest.mark.parametrize("executor", ["auto", "slurm"])
@pytest.mark.parametrize("text", [UP, DOWN + "Slurmctld(backup) at head2 is UP\n"])
def test_slurm_is_taken_where_a_controller_answers(scheduler: Any, tmp_path: Path, executor: Any, text: str) -> None:
    scheduler.says("scontrol", text)
    cluster, why = detect(executor, tmp_path)
    assert (cluster.name, cluster.slots) == ("slurm", None)
    assert "is UP" in why
    assert "\n" not in why


def test_local_is_taken_where_none_is_set_up(scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("scontrol", err="scontrol: error: Could not establish a configuration source", code=1)
    cluster, why = detect("auto", tmp_path)
    assert (cluster.name, cluster.slots) == ("local", len(os.sched_getaffinity(0)))
    assert "no Slurm cluster answers" in why
    assert "configuration source" in why


def test_programs_alone_make_no_cluster(scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit takes any machine with srun on PATH for a cluster."""
    (scheduler.folder / "scontrol").unlink()
    monkeypatch.setenv("PATH", str(scheduler.folder))
    cluster, why = detect("auto", tmp_path)
    assert cluster.name == "local"
    assert "scontrol is not on PATH" in why


@pytest.mark.parametrize("executor", ["auto", "slurm"])
def test_a_cluster_that_is_down_is_waited_for(scheduler: Any, tmp_path: Path, executor: Any) -> None:
    """S31: a study for the cluster must not land on the login node during an outage."""
    scheduler.says("scontrol", DOWN)
    with pytest.raises(TransientClusterError, match=r"does not answer: .*head1 is DOWN.*cluster.executor: local"):
        detect(executor, tmp_path)


def test_slurm_without_a_cluster_says_how_to_go_on(scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("scontrol", err="scontrol: error: no such config", code=1)
    with pytest.raises(PermanentClusterError, match=r"no such config; .*cluster.executor: local"):
        detect("slurm", tmp_path)


def test_local_asks_no_scheduler(scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("scontrol", UP)
    cluster, _ = detect("local", tmp_path, slots=3)
    assert (cluster.name, cluster.slots) == ("local", 3)
    assert scheduler.calls("scontrol") == []
