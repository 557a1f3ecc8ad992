"""The Slurm cluster on a real one: tools/slurm/up starts it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcjf.cluster.base import JobClass, JobRequest, JobStatus
from hpcjf.cluster.detect import detect
from hpcjf.cluster.slurm import SlurmCluster
from hpcjf.cluster.template import controller_script
from hpcjf.errors import PermanentClusterError, TransientClusterError
from hpcjf.study import Resources

pytestmark = pytest.mark.slurm

JOBS = '''
import os, pathlib, signal, time


def wait(path):
    """Run until the file "go" stands beside path; SIGUSR2 leaves a mark."""
    path = pathlib.Path(path)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, lambda *_: path.with_suffix(".usr2").touch())
    with open(path.with_suffix(".runs"), "a") as file:
        file.write(os.environ.get("SLURM_RESTART_COUNT", "0") + "\\n")
    while not path.with_name("go").exists():
        time.sleep(0.05)


def hog(path):
    blocks = []
    while len(blocks) < 100:
        blocks.append(bytearray(10**7))
        time.sleep(0.01)


def crash(path):
    raise SystemExit(3)
'''


class Jobs:
    """Submits the functions above, remembers the ids, and cancels them all in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = SlurmCluster()
        self.names: list[str] = []

    def request(self, function: str, **resources: object) -> JobRequest:
        name = f"test-{uuid.uuid4().hex}"
        self.names.append(name)
        chosen = Resources.model_validate({"time_minutes": 5, "mem_gb": 0.25} | resources)
        folder = self.folder / name
        folder.mkdir()
        return JobRequest(name, folder / "job", f"slurm_jobs:{function}", str(folder / "spec.json"), chosen, 60)

    def status(self, job_id: str) -> JobStatus:
        return self.cluster.poll([job_id])[job_id]

    def reaches(self, job_id: str, job_class: JobClass, seconds: float = 60) -> JobStatus:
        deadline = time.monotonic() + seconds
        while (status := self.status(job_id)).job_class is not job_class:
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    (tmp_path / "slurm_jobs.py").write_text(JOBS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs = Jobs(tmp_path)
    yield jobs
    for name in jobs.names:
        subprocess.run(["scancel", f"--name={name}"], check=False)


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a bash script before a Slurm program on PATH; ``$real`` is the program itself. Calls are logged."""
    folder = tmp_path / "shims"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(program: str, body: str = 'exec "$real" "$@"') -> Path:
        real = shutil.which(program, path=os.environ["PATH"].removeprefix(f"{folder}:"))
        log, path = folder / f"{program}.calls", folder / program
        path.write_text(f"#!/bin/bash\nreal={real}\necho \"$*\" >> '{log}'\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return log

    return make


def release(request: JobRequest) -> None:
    (request.folder.parent / "go").touch()


def calls(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_job_waits_runs_and_finishes(jobs: Jobs) -> None:
    request = jobs.request("wait", extra_directives={"begin": "now+2"}, cpus=2, gpus=1)
    job_id = jobs.cluster.submit(request)
    pending = jobs.reaches(job_id, JobClass.PENDING)
    assert (pending.started, pending.name) == (None, request.name)
    running = jobs.reaches(job_id, JobClass.RUNNING)
    assert running.started is not None
    assert abs(time.time() - running.started) < 60
    release(request)
    finished = jobs.reaches(job_id, JobClass.FINISHED)
    assert finished.ended is not None
    assert (request.folder / f"{job_id}_0_log.out").exists()


def test_the_cluster_is_detected(tmp_path: Path) -> None:
    cluster, why = detect("auto", tmp_path)
    assert cluster.name == "slurm"
    assert "is UP" in why


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"partition": "nope"}, "nvalid partition"),
        ({"account": "nope"}, "Invalid account"),
        ({"qos": "nope"}, "Invalid qos"),
        ({"mem_gb": 100000}, "Requested node configuration is not available"),
        ({"time_minutes": 100000}, "Requested time limit is invalid"),
        ({"extra_directives": {"gres": "unicorn:1"}}, "Invalid generic resource"),
        ({"extra_directives": {"constraint": "unicorn"}}, "Invalid feature"),
    ],
)
def test_the_sites_refusal_is_permanent_and_quoted(jobs: Jobs, resources: dict[str, object], text: str) -> None:
    request = jobs.request("wait", **resources)
    with pytest.raises(PermanentClusterError, match=text):
        jobs.cluster.check(request.resources)
    with pytest.raises(PermanentClusterError, match=text):
        jobs.cluster.submit(request)


def test_check_submits_nothing(jobs: Jobs) -> None:
    before = subprocess.run(["squeue", "-h", "-t", "all", "-n", "sbatch"], capture_output=True, check=True).stdout
    jobs.cluster.check(Resources(cpus=2, gpus=1, time_minutes=5))
    after = subprocess.run(["squeue", "-h", "-t", "all", "-n", "sbatch"], capture_output=True, check=True).stdout
    assert before == after


def test_cancel_names_the_user(jobs: Jobs) -> None:
    request = jobs.request("wait")
    job_id = jobs.cluster.submit(request)
    jobs.reaches(job_id, JobClass.RUNNING)
    jobs.cluster.cancel([job_id])
    status = jobs.reaches(job_id, JobClass.CANCELLED)
    assert status.cancelled_by == str(os.getuid())
    jobs.cluster.cancel([job_id, "1"])


def test_out_of_memory_is_told_from_a_crash(jobs: Jobs) -> None:
    """P28, P43: only the step's row says so."""
    hog, crash = jobs.cluster.submit(jobs.request("hog", mem_gb=0.15)), jobs.cluster.submit(jobs.request("crash"))
    assert jobs.reaches(hog, JobClass.OUT_OF_MEMORY).state == "FAILED"
    assert jobs.reaches(crash, JobClass.FAILED).state == "FAILED"


def test_a_requeue_keeps_the_id_and_counts(jobs: Jobs) -> None:
    """S6, P41: the second run works in the same folder, over what the first one left there."""
    request = jobs.request("wait")
    job_id = jobs.cluster.submit(request)
    runs = Path(request.argument).with_suffix(".runs")
    for restart in (1, 2):
        jobs.reaches(job_id, JobClass.RUNNING)
        while not runs.exists() or len(runs.read_text().split()) < restart:
            assert jobs.status(job_id).job_class.active
            time.sleep(0.1)
        (request.folder / f"{job_id}_0_result.pkl.save_tmp").touch()
        subprocess.run(["scontrol", "requeue", job_id], check=True)
        jobs.reaches(job_id, JobClass.PENDING)
        assert jobs.reaches(job_id, JobClass.RUNNING).restarts == restart
    release(request)
    assert jobs.reaches(job_id, JobClass.FINISHED).restarts == 2
    assert runs.read_text().split() == ["0", "1", "2"]


def test_a_held_job_is_held(jobs: Jobs) -> None:
    """S16."""
    job_id = jobs.cluster.submit(jobs.request("wait", extra_directives={"begin": "now+1hour"}))
    assert jobs.status(job_id).job_class is JobClass.PENDING
    subprocess.run(["scontrol", "hold", job_id], check=True)
    assert "Held" in jobs.reaches(job_id, JobClass.HELD).reason


def test_twenty_jobs_cost_one_query(jobs: Jobs, shim: Callable[..., Path]) -> None:
    """S3, P34: constant in the number of jobs, for submissions and for polls."""
    squeue, sacct, sbatch = shim("squeue"), shim("sacct"), shim("sbatch")
    requests = [jobs.request("wait", mem_gb=0.1) for _ in range(20)]
    ids = [jobs.cluster.submit(request) for request in requests]
    assert (calls(squeue), calls(sacct), calls(sbatch)) == (0, 0, 20)
    assert all(job.job_class.active for job in jobs.cluster.poll(ids).values())
    assert (calls(squeue), calls(sacct)) == (1, 0)
    jobs.cluster.cancel(ids)


def test_an_accepted_job_whose_answer_was_lost_is_found_and_works(jobs: Jobs, shim: Callable[..., Path]) -> None:
    """P25, P35: sbatch times out after the controller has taken the job."""
    shim("sbatch", '"$real" "$@" >/dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1')
    request = jobs.request("wait")
    with pytest.raises(TransientClusterError, match="Socket timed out"):
        jobs.cluster.submit(request)
    job_id = jobs.cluster.find(request.name)
    assert job_id is not None
    jobs.reaches(job_id, JobClass.RUNNING)
    release(request)
    jobs.reaches(job_id, JobClass.FINISHED)
    assert Path(request.argument).with_suffix(".runs").exists()
    assert SlurmCluster().find(f"{request.name}x") is None


def test_a_job_that_left_squeue_is_found_in_the_accounts(jobs: Jobs, shim: Callable[..., Path]) -> None:
    """S10."""
    request = jobs.request("wait")
    job_id = jobs.cluster.submit(request)
    release(request)
    jobs.reaches(job_id, JobClass.FINISHED)
    shim("squeue", "exit 0")
    deadline = time.monotonic() + 60  # accounts come a little late, the name after the state
    while jobs.cluster.find(request.name) is None or job_id not in jobs.cluster.poll([job_id]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert jobs.reaches(job_id, JobClass.FINISHED).name == request.name
    assert jobs.cluster.find(request.name) == job_id
    shim("sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    assert jobs.cluster.poll([job_id]) == {}, "unknown, not ended"


def test_without_accounts_a_whole_life_is_seen(jobs: Jobs, shim: Callable[..., Path]) -> None:
    """S1, P37."""
    shim("sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    request = jobs.request("wait")
    job_id = jobs.cluster.submit(request)
    jobs.reaches(job_id, JobClass.RUNNING)
    jobs.cluster.cancel([job_id])
    assert jobs.reaches(job_id, JobClass.CANCELLED).cancelled_by is None
    crash = jobs.cluster.submit(jobs.request("crash"))
    jobs.reaches(crash, JobClass.FAILED)


def test_a_failed_query_concludes_nothing(jobs: Jobs, shim: Callable[..., Path]) -> None:
    """S9, S31."""
    job_id = jobs.cluster.submit(jobs.request("wait"))
    jobs.reaches(job_id, JobClass.RUNNING)
    shim("squeue", 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(TransientClusterError):
        jobs.cluster.poll([job_id])
    shim("squeue")
    assert jobs.status(job_id).job_class is JobClass.RUNNING


def test_the_warning_signal_reaches_python(jobs: Jobs) -> None:
    """S25: USR2, which NCCL does not take."""
    request = jobs.request("wait")
    job_id = jobs.cluster.submit(request)
    deadline = time.monotonic() + 60
    while not Path(request.argument).with_suffix(".runs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    subprocess.run(["scancel", "--signal=USR2", job_id], check=True)
    while not Path(request.argument).with_suffix(".usr2").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    release(request)
    jobs.reaches(job_id, JobClass.FINISHED)


def test_the_controllers_own_script_is_a_job(jobs: Jobs, tmp_path: Path) -> None:
    """S21, P26."""
    name = f"test-{uuid.uuid4().hex}"
    jobs.names.append(name)
    resources = Resources(partition="low", time_minutes=5, cpus=1, mem_gb=0.1)
    script = controller_script(
        name=name, program=Path("/bin/echo"), run=tmp_path, resources=resources, signal_seconds=60
    )
    subprocess.run(["sbatch"], input=script, text=True, check=True, capture_output=True)
    job_id = jobs.cluster.find(name)
    assert job_id is not None
    jobs.reaches(job_id, JobClass.FINISHED)
    assert (tmp_path / f"controller-{job_id}.log").read_text() == f"run {tmp_path}\n"
