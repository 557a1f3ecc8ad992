"""The Slurm cluster against programs that answer as told; tests/slurm has the real one."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcjf.cluster.base import JobClass, JobRequest
from hpcjf.cluster.slurm import SlurmCluster
from hpcjf.errors import LimitClusterError, PermanentClusterError, TransientClusterError
from hpcjf.study import Resources

Requests = Callable[..., JobRequest]


def submitted_script(request: JobRequest) -> list[str]:
    return (request.folder / "submission.sh").read_text().splitlines()


def test_one_squeue_serves_all_jobs(scheduler: Any) -> None:
    """S3, P34: the number of scheduler calls does not grow with the number of jobs."""
    ids = [str(1000 + n) for n in range(20)]
    scheduler.queue(*[(job_id, "RUNNING") for job_id in ids])
    jobs = SlurmCluster().poll(ids)
    assert {job.job_class for job in jobs.values()} == {JobClass.RUNNING}
    assert list(jobs) == ids
    assert (len(scheduler.calls("squeue")), len(scheduler.calls("sacct"))) == (1, 0)
    assert "--states=all" in scheduler.calls("squeue")[0], "S7: without it, failed jobs are not shown"


def test_no_jobs_no_query(scheduler: Any) -> None:
    assert SlurmCluster().poll([]) == {}
    SlurmCluster().cancel([])
    assert not (scheduler.folder / "calls").exists()


def test_sacct_is_asked_once_and_only_for_what_left_squeue(scheduler: Any) -> None:
    """S4, S10: two stages, bounded in time."""
    scheduler.queue(("1", "RUNNING"))
    scheduler.says("sacct", "2|b|1|2|0:0|COMPLETED\n3|c|1|2|0:0|TIMEOUT\n")
    jobs = SlurmCluster().poll(["1", "2", "3", "4"])
    assert {job_id: job.job_class for job_id, job in jobs.items()} == {
        "1": JobClass.RUNNING,
        "2": JobClass.FINISHED,
        "3": JobClass.WALL_TIME,
    }, "an id that nobody knows is missing from the answer"
    [call] = scheduler.calls("sacct")
    assert "--jobs=2,3,4" in call
    assert "--starttime=" in call


@pytest.mark.parametrize(("out", "code"), [("", 1), ("1 x RUNNING", 1)])
def test_a_failed_query_changes_no_state(scheduler: Any, out: str, code: int) -> None:
    """S9, S31: through hours without a controller nothing is concluded."""
    scheduler.says("squeue", out, "slurm_load_jobs error: Unable to contact slurm controller", code)
    with pytest.raises(TransientClusterError, match="Unable to contact"):
        SlurmCluster().poll(["1"])
    with pytest.raises(TransientClusterError):
        SlurmCluster().find("n1")


@pytest.mark.parametrize("program", ["squeue", "sacct"])
def test_a_hanging_command_is_given_up(scheduler: Any, program: str) -> None:
    scheduler.queue()
    scheduler.hangs(program)
    with pytest.raises(TransientClusterError, match="no answer within"):
        SlurmCluster(timeout=0.5).find("n1")


@pytest.mark.parametrize("text", ["Slurm accounting storage is disabled", "sacct: error: slurmdbd: Connection refused"])
def test_it_works_without_sacct(scheduler: Any, text: str) -> None:
    """S1, P37: no database, or one that is down."""
    scheduler.queue(("1", "FAILED", "50"), ("3", "COMPLETED", "50"))
    scheduler.says("sacct", err=text, code=1)
    jobs = SlurmCluster().poll(["1", "2", "3"])
    assert {job_id: job.job_class for job_id, job in jobs.items()} == {"1": JobClass.FAILED, "3": JobClass.FINISHED}


def test_a_name_is_looked_up_without_sacct_only_where_there_is_none(scheduler: Any) -> None:
    scheduler.queue()
    scheduler.says("sacct", err="Slurm accounting storage is disabled", code=1)
    assert SlurmCluster().find("n1") is None
    scheduler.says("sacct", err="sacct: error: slurmdbd: Connection refused", code=1)
    with pytest.raises(TransientClusterError):
        SlurmCluster().find("n1")


def test_out_of_memory_is_found_in_the_accounts(scheduler: Any) -> None:
    """P28, P43."""
    scheduler.queue(("1", "FAILED", str(time.time())))
    scheduler.says("sacct", "1|n1|1|2|1:0|FAILED\n1.0|python|1|2|0:125|OUT_OF_MEMORY\n")
    job = SlurmCluster().poll(["1"])["1"]
    assert (job.job_class, job.restarts) == (JobClass.OUT_OF_MEMORY, 1)


@pytest.mark.parametrize("accounts", ["", "1|n1|1|Unknown|0:0|RUNNING\n", "1|n1|1|2|0:0|NODE_FAIL\n"])
def test_accounts_that_lag_are_waited_for(scheduler: Any, accounts: str) -> None:
    """The job's step row tells out of memory from a crash, and comes later than the end; an older row tells nothing."""
    scheduler.says("sacct", accounts)
    scheduler.queue(("1", "FAILED", str(time.time())))
    assert SlurmCluster().poll(["1"])["1"].job_class is JobClass.RUNNING
    scheduler.queue(("1", "FAILED", str(time.time() - 300)))
    assert SlurmCluster().poll(["1"])["1"].job_class is JobClass.FAILED


def test_who_cancelled_is_found_in_the_accounts(scheduler: Any) -> None:
    scheduler.queue(("1", "CANCELLED", str(time.time())))
    scheduler.says("sacct", "1|n1|1|2|0:0|CANCELLED by 4711\n")
    job = SlurmCluster().poll(["1"])["1"]
    assert (job.job_class, job.cancelled_by) == (JobClass.CANCELLED, "4711")


def test_accounts_that_say_running_of_a_vanished_job_prove_nothing(scheduler: Any) -> None:
    """P40."""
    scheduler.queue()
    scheduler.says("sacct", "1|n1|1|Unknown|0:0|RUNNING\n")
    assert SlurmCluster().poll(["1"])["1"].job_class is JobClass.UNKNOWN


def test_requeued_jobs_are_kept(scheduler: Any) -> None:
    """S6, P38: the same id comes back by itself; sacct's record of the first run must not end it."""
    scheduler.queue(("1", "PENDING"), ("2", "REQUEUED"), ("3", "COMPLETING"))
    scheduler.says("sacct", "1|n1|1|2|0:0|PREEMPTED\n")
    assert all(job.job_class.active for job in SlurmCluster().poll(["1", "2", "3"]).values())
    assert scheduler.calls("sacct") == []


def test_the_newest_job_of_a_name_is_found(scheduler: Any) -> None:
    """P25, P35: how a job whose id was never recorded is adopted."""
    scheduler.says("squeue", "".join(f"{i:<64}{'n1':<256}RUNNING 100 N/A 0 None\n" for i in ("9", "10")))
    assert SlurmCluster().find("n1") == "10"
    assert SlurmCluster().find("n") is None
    scheduler.says("squeue")
    scheduler.says("sacct", "7|n1|1|2|0:0|COMPLETED\n7.batch|batch|1|2|0:0|COMPLETED\n")
    assert SlurmCluster().find("n1") == "7"


def test_only_the_users_own_jobs_are_asked_for(scheduler: Any) -> None:
    scheduler.queue()
    SlurmCluster().find("n1")
    SlurmCluster().poll(["1"])
    assert all("--user=" in call for program in ("squeue", "sacct") for call in scheduler.calls(program))


def test_submit_asks_sbatch_once_and_sacct_never(scheduler: Any, request_for: Requests) -> None:
    """S3: submitit's watcher would ask sacct for each new job."""
    scheduler.says("sbatch", "sbatch: hello from the site\n42;tux\n")
    cluster = SlurmCluster()
    assert [cluster.submit(request_for("wait", f"job-{n}")) for n in range(3)] == ["42", "42", "42"]
    assert len(scheduler.calls("sbatch")) == 3
    assert scheduler.calls("sacct") == scheduler.calls("squeue") == []


def test_the_script_says_what_the_study_says(scheduler: Any, request_for: Requests) -> None:
    scheduler.says("sbatch", "42\n")
    request = request_for(
        "wait",
        signal_seconds=30,
        cpus=4,
        gpus=1,
        mem_gb=2,
        time_minutes=7,
        setup=("module load cuda", "source /opt/env"),
        extra_directives={"constraint": "a100&ib", "exclusive": ""},
    )
    SlurmCluster().submit(request)
    script = submitted_script(request)
    for line in ("cpus-per-task=4", "gpus-per-node=1", "mem=2048M", "time=7", "signal=USR2@30", "exclusive", "nodes=1"):
        assert f"#SBATCH --{line}" in script
    assert "#SBATCH --constraint='a100&ib'" in script
    assert "#SBATCH --job-name=job-1" in script
    assert not any("wckey" in line for line in script), "a site may refuse submitit's wckey"
    own = script.index("export OMP_NUM_THREADS=4")
    assert own < script.index("module load cuda") < script.index("source /opt/env")
    assert "--cpus-per-task=4" in next(line for line in script if line.startswith("srun"))


def test_a_trial_of_several_processes_has_a_task_for_each(scheduler: Any, request_for: Requests) -> None:
    scheduler.says("sbatch", "42\n")
    request = request_for("wait", nodes=2, gpus=4, cpus=32)
    SlurmCluster().submit(request)
    script = submitted_script(request)
    for line in ("nodes=2", "ntasks-per-node=4", "gpus-per-node=4", "cpus-per-task=8"):
        assert f"#SBATCH --{line}" in script
    [srun] = [line for line in script if line.startswith("srun")]
    assert "--kill-on-bad-exit=1" in srun
    assert "export OMP_NUM_THREADS=8" in script


def test_nothing_is_asked_for_unasked(scheduler: Any, request_for: Requests) -> None:
    """S19: no time, memory or cores but the site's own defaults; and any line can be left out."""
    scheduler.says("sbatch", "42\n")
    request = request_for("wait", skip_directives=("nodes", "open-mode"))
    SlurmCluster().submit(request)
    lines = [line for line in submitted_script(request) if line.startswith("#SBATCH")]
    assert {line.split("--")[1].split("=")[0] for line in lines} == {"error", "job-name", "output", "signal"}
    assert "export OMP_NUM_THREADS=1" in submitted_script(request)


def test_the_job_folder_is_private(scheduler: Any, request_for: Requests) -> None:
    scheduler.says("sbatch", "42\n")
    request = request_for("wait")
    SlurmCluster().submit(request)
    assert stat.S_IMODE(request.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("folder", ["/tmp/100%", "/tmp/a\nb", "/tmp/it's", "/tmp/$HOME", "/tmp/a\\b"])  # noqa: S108
def test_paths_that_slurm_would_misread_are_refused(scheduler: Any, folder: str) -> None:
    request = JobRequest("n", Path(folder), "a:b", "x", Resources(), 60)
    with pytest.raises(PermanentClusterError, match="another folder"):
        SlurmCluster().submit(request)
    assert scheduler.calls("sbatch") == []


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a/b", "-a", "a\n", "x" * 129])
def test_a_job_name_must_be_one_that_can_be_looked_up(name: str) -> None:
    with pytest.raises(PermanentClusterError, match="name a job"):
        JobRequest(name, Path("x"), "a:b", "x", Resources(), 60)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", TransientClusterError),
        ("sbatch: error: Batch job submission failed: job queue full", LimitClusterError),
        ("sbatch: error: invalid partition specified: nope", PermanentClusterError),
    ],
)
def test_sbatchs_refusals_are_told_apart(
    scheduler: Any, request_for: Requests, text: str, error: type[Exception]
) -> None:
    """S12, S13."""
    scheduler.says("sbatch", err=text, code=1)
    with pytest.raises(error, match=text.split(": ")[-1]):
        SlurmCluster().submit(request_for("wait"))
    with pytest.raises(error):
        SlurmCluster().check(Resources())


def test_an_sbatch_that_hangs_is_transient(scheduler: Any, request_for: Requests) -> None:
    scheduler.hangs("sbatch")
    with pytest.raises(TransientClusterError, match="no answer"):
        SlurmCluster(timeout=0.5).submit(request_for("wait"))


def test_an_outer_job_leaves_no_trace(scheduler: Any, request_for: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """S18: the controller may itself be a job; its CPU binding and defaults must not reach ours."""
    for name in ("SLURM_JOB_ID", "SLURM_CPU_BIND", "SBATCH_PARTITION", "SRUN_CPUS_PER_TASK", "SLURM_CONF"):
        monkeypatch.setenv(name, "outer")
    scheduler.says("sbatch", "42\n")
    SlurmCluster().submit(request_for("wait"))
    seen = (scheduler.folder / "sbatch.env").read_text().splitlines()
    assert [line for line in seen if line.startswith(("SLURM", "SBATCH", "SRUN"))] == ["SLURM_CONF=outer"]


def test_check_shows_the_scheduler_the_same_directives(scheduler: Any) -> None:
    SlurmCluster().check(Resources(partition="gpu", cpus=2))
    assert scheduler.calls("sbatch") == ["sbatch --test-only"]
    sent = (scheduler.folder / "sbatch.stdin").read_text().splitlines()
    assert sent[0] == "#!/bin/bash"
    assert {"#SBATCH --partition=gpu", "#SBATCH --cpus-per-task=2"} <= set(sent)


def test_cancelling_what_has_ended_is_no_error(scheduler: Any) -> None:
    scheduler.says("scancel", err="scancel: error: Kill job error on job id 1: Invalid job id specified\n", code=1)
    SlurmCluster().cancel(["1", "2"])
    assert scheduler.calls("scancel") == ["scancel 1 2"]
    scheduler.says(
        "scancel", err="scancel: error: Kill job error on job id 2: Unable to contact slurm controller", code=1
    )
    with pytest.raises(TransientClusterError):
        SlurmCluster().cancel(["2"])
