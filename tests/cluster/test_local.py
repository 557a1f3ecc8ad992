"""Local jobs outlive their controller, are found again by name, and never twice or mistaken for another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcjf.cluster.base import JobClass, JobRequest
from hpcjf.cluster.local import LocalCluster
from hpcjf.cluster.processes import session_members, start_token
from hpcjf.errors import LimitClusterError, PermanentClusterError
from hpcjf.study import Resources

Requests = Callable[..., JobRequest]
Eventually = Callable[..., None]

CONTROLLER = """
import os, signal, sys, time
from pathlib import Path
from hpcjf.cluster import local
from hpcjf.cluster.base import JobRequest
from hpcjf.study import Resources

records, name, folder, argument, end = sys.argv[1:]
cluster = local.LocalCluster(Path(records), 2)
if end == "right after the start":
    local.LocalCluster._started = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cluster.submit(JobRequest(name, Path(folder), "sample_jobs:wait", argument, Resources(), 60))
print("submitted", flush=True)
if end == "at Ctrl-C":
    time.sleep(600)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "records", 4)
    yield cluster
    for path in (tmp_path / "records").glob("*.job.json"):
        job_id = json.loads(path.read_text())["job_id"]
        cluster.cancel([job_id])
        cluster.cancel([job_id])


def state(cluster: LocalCluster, job_id: str) -> JobClass:
    return cluster.poll([job_id])[job_id].job_class


def release(request: JobRequest) -> None:
    (request.folder.parent / "go").touch()


def runs(request: JobRequest) -> list[int]:
    log = request.folder.parent / "runs"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def controller(tmp_path: Path, request: JobRequest, end: str) -> subprocess.Popen[str]:
    argv = [str(tmp_path / "records"), request.name, str(request.folder), request.argument, end]
    return subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, *argv], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def test_a_job_runs_and_finishes(cluster: LocalCluster, request_for: Requests, eventually: Eventually) -> None:
    request = request_for("wait", setup=("echo from the setup",))
    job_id = cluster.submit(request)
    status = cluster.poll([job_id])[job_id]
    assert (status.job_class, status.name) == (JobClass.RUNNING, "job-1")
    assert status.started is not None
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    assert "from the setup" in next(request.folder.glob("*_log.out")).read_text()
    assert request.folder.stat().st_mode & 0o777 == 0o700


def test_our_own_children_leave_no_zombies(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("wait")
    job_id = cluster.submit(request)
    release(request)
    eventually(lambda: state(cluster, job_id).ended)
    eventually(lambda: cluster.poll([job_id]) and not Path(f"/proc/{job_id.split(':')[0]}").exists())


@pytest.mark.parametrize("end", ["after submitting", "right after the start"])
def test_another_controller_adopts_the_job(
    tmp_path: Path, cluster: LocalCluster, request_for: Requests, eventually: Eventually, end: str
) -> None:
    """S21, P25: killed at any instant, also before it has recorded the job's id."""
    request = request_for("wait")
    assert controller(tmp_path, request, end).wait() == -signal.SIGKILL
    eventually(lambda: cluster.find("job-1"))
    job_id = cluster.find("job-1")
    assert job_id is not None
    assert cluster.submit(request) == job_id, "submitting again must not start a second job"
    assert state(cluster, job_id) is JobClass.RUNNING
    eventually(lambda: runs(request))
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    assert len(runs(request)) == 1


def test_two_starts_of_one_name_make_one_job(
    tmp_path: Path, cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("wait")
    started = [controller(tmp_path, request, "right after the start") for _ in range(3)]
    assert [process.wait() for process in started] == [-signal.SIGKILL] * 3
    eventually(lambda: runs(request))
    job_id = cluster.submit(request)
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    assert len(runs(request)) == 1


def test_ctrl_c_does_not_reach_the_job(
    tmp_path: Path, cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("wait")
    process = controller(tmp_path, request, "at Ctrl-C")
    assert process.stdout is not None
    assert process.stdout.readline() == "submitted\n"
    eventually(lambda: runs(request))
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() != 0
    process.stdout.close()
    job_id = cluster.find("job-1")
    assert job_id is not None
    assert state(cluster, job_id) is JobClass.RUNNING
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)


def test_a_reused_pid_is_not_the_job(tmp_path: Path, cluster: LocalCluster) -> None:
    """The process has our job's number but started at another time: it is not polled, and not killed."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        job_id = f"{stranger.pid}:00000000-1"
        record = {"job_id": job_id, "host": os.uname().nodename, "started": 1.0}
        (tmp_path / "records").mkdir()
        (tmp_path / "records" / "job-1.job.json").write_text(json.dumps(record))
        status = cluster.poll([job_id])[job_id]
        assert (status.job_class, status.state) == (JobClass.INFRASTRUCTURE, "NODE_FAIL")
        LocalCluster(tmp_path / "records", 1).cancel([job_id])
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_job_of_another_machine_is_unknown(tmp_path: Path, cluster: LocalCluster) -> None:
    (tmp_path / "records").mkdir()
    record = {"job_id": "99999999:0-1", "host": "elsewhere", "started": 1.0}
    (tmp_path / "records" / "job-1.job.json").write_text(json.dumps(record))
    status = cluster.poll(["99999999:0-1"])["99999999:0-1"]
    assert status.job_class is JobClass.UNKNOWN
    assert "elsewhere" in status.reason


def test_an_id_that_nobody_recorded_is_missing_from_the_answer(cluster: LocalCluster) -> None:
    assert cluster.poll(["1:2-3"]) == {}
    assert cluster.find("job-1") is None
    cluster.cancel(["1:2-3"])


def test_no_more_jobs_than_slots(tmp_path: Path, request_for: Requests, eventually: Eventually) -> None:
    """A second controller counts the first one's jobs."""
    requests = [request_for("wait", f"job-{n}") for n in range(3)]
    first, second = LocalCluster(tmp_path / "records", 2), LocalCluster(tmp_path / "records", 2)
    assert first.slots == 2
    ids = [first.submit(request) for request in requests[:2]]
    with pytest.raises(LimitClusterError, match="all 2 slots"):
        second.submit(requests[2])
    release(requests[0])
    eventually(lambda: state(second, ids[0]).ended)
    third = second.submit(requests[2])
    for request in requests:
        release(request)
    eventually(lambda: all(state(first, job_id) is JobClass.FINISHED for job_id in (*ids, third)))


def test_a_failing_job_tells_its_exit_code(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    job_id = cluster.submit(request_for("fail"))
    eventually(lambda: state(cluster, job_id).ended)
    status = cluster.poll([job_id])[job_id]
    assert (status.job_class, status.reason) == (JobClass.FAILED, "exit code 3")


def test_a_job_of_two_processes_ends_with_both(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("wait", processes=2)
    job_id = cluster.submit(request)
    eventually(lambda: len(runs(request)) == 2)
    assert state(cluster, job_id) is JobClass.RUNNING
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)


def test_several_nodes_need_a_scheduler(cluster: LocalCluster) -> None:
    cluster.check(Resources(nodes=1, processes=4))
    with pytest.raises(PermanentClusterError, match="local jobs have one node, and the study asks for 2"):
        cluster.check(Resources(nodes=2))


def test_a_killed_job_tells_its_signal(cluster: LocalCluster, request_for: Requests, eventually: Eventually) -> None:
    request = request_for("wait")
    job_id = cluster.submit(request)
    eventually(lambda: runs(request))
    os.kill(runs(request)[0], signal.SIGKILL)
    eventually(lambda: state(cluster, job_id).ended)
    status = cluster.poll([job_id])[job_id]
    assert (status.job_class, status.reason) == (JobClass.FAILED, "killed by SIGKILL")


def test_a_job_whose_parent_is_gone_still_runs(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    """Only when its last process is gone, too, may another attempt start."""
    request = request_for("wait")
    job_id = cluster.submit(request)
    eventually(lambda: runs(request))
    os.kill(int(job_id.split(":")[0]), signal.SIGKILL)
    eventually(lambda: start_token(int(job_id.split(":")[0])) is None)
    assert state(cluster, job_id) is JobClass.RUNNING
    os.kill(runs(request)[0], signal.SIGKILL)
    eventually(lambda: state(cluster, job_id) is JobClass.INFRASTRUCTURE)


def test_cancel_ends_the_job(cluster: LocalCluster, request_for: Requests, eventually: Eventually) -> None:
    request = request_for("wait")
    job_id = cluster.submit(request)
    eventually(lambda: runs(request))
    cluster.cancel([job_id])
    eventually(lambda: state(cluster, job_id).ended)
    status = cluster.poll([job_id])[job_id]
    assert (status.job_class, status.cancelled_by) == (JobClass.CANCELLED, str(os.getuid()))


def test_a_second_cancel_kills(cluster: LocalCluster, request_for: Requests, eventually: Eventually) -> None:
    request = request_for("stubborn")
    job_id = cluster.submit(request)
    eventually(Path(f"{request.argument}.up").exists)
    cluster.cancel([job_id])
    assert state(cluster, job_id) is JobClass.RUNNING
    cluster.cancel([job_id])
    eventually(lambda: state(cluster, job_id) is JobClass.CANCELLED)


def test_a_cancel_after_the_end_changes_nothing(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("wait")
    job_id = cluster.submit(request)
    release(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    cluster.cancel([job_id])
    assert state(cluster, job_id) is JobClass.FINISHED


def test_children_do_not_outlive_the_job(cluster: LocalCluster, request_for: Requests, eventually: Eventually) -> None:
    """P43."""
    request = request_for("leave_child")
    job_id = cluster.submit(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    child = int(Path(f"{request.argument}.child").read_text())
    eventually(lambda: start_token(child) is None)
    assert session_members(int(job_id.split(":")[0]), "HPCJF_JOB=job-1") == []


def test_the_wall_time_limit_warns_and_ends(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually
) -> None:
    request = request_for("warned", signal_seconds=1, time_minutes=0.05)
    job_id = cluster.submit(request)
    eventually(lambda: state(cluster, job_id) is JobClass.WALL_TIME)
    assert Path(f"{request.argument}.usr2").exists()


def test_the_jobs_environment(
    cluster: LocalCluster, request_for: Requests, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: nothing of an outer Slurm job; as many threads as cores; no GPU where none is asked for."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    request = request_for("environment", cpus=3, gpus=0)
    job_id = cluster.submit(request)
    eventually(lambda: state(cluster, job_id) is JobClass.FINISHED)
    seen = Path(f"{request.argument}.env").read_text().splitlines()
    assert {"OMP_NUM_THREADS=3", "CUDA_VISIBLE_DEVICES="} <= set(seen)
    assert not any(line.startswith("SLURM_JOB") for line in seen)


def test_an_entry_must_be_a_module_and_a_function(cluster: LocalCluster, tmp_path: Path, request_for: Requests) -> None:
    good = request_for("wait")
    for entry in ("wait", "os.system('x'):f", "a:b:c", "a b:c", ""):
        bad = JobRequest("job-2", good.folder, entry, good.argument, good.resources, 60)
        with pytest.raises(PermanentClusterError, match="no entry"):
            cluster.submit(bad)
