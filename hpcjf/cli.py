"""The command line."""

from __future__ import annotations

import gc
import importlib.resources
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hpcjf import __version__
from hpcjf.errors import HpcjfError, UserError

if TYPE_CHECKING:
    from hpcjf.store.layout import RunLayout
    from hpcjf.study import Study

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Hyperparameters of RL post-training on Slurm clusters: a small proxy searches, the target confirms.",
)
# readable=False: what cannot be read is told in our own way
Run = Annotated[Path, typer.Argument(help="Run directory, or the study's folder.", metavar="RUN", readable=False)]


class ExecutorName(StrEnum):
    AUTO = "auto"
    SLURM = "slurm"
    LOCAL = "local"


Executor = Annotated[ExecutorName | None, typer.Option(help="Where jobs run; overrides cluster.executor.")]


def main() -> None:
    """Console script: an error is one line, and its exit code says whose fault it is."""
    try:
        app(prog_name="hpcjf")
    except HpcjfError as error:
        _fail(str(error), error.exit_code)
    except PermissionError as error:
        text = f"{error.filename}: {error.strerror}; name a folder of yours, or mend its permissions"
        _fail(text, UserError.exit_code)


def _fail(text: str, code: int) -> NoReturn:
    # a key of the study file may hold escape sequences
    print("hpcjf: " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text), file=sys.stderr)
    sys.exit(code)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        print(f"hpcjf {__version__}")
        raise typer.Exit


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="New folder for the study.")]) -> None:
    """Write a commented study.yaml that runs as it is."""
    from hpcjf.store.atomic import write_text

    target = folder / "study.yaml"
    if os.path.lexists(target):
        raise UserError("exists already", where=str(target), fix="name another folder")
    template = (importlib.resources.files("hpcjf.configs") / "study.yaml").read_text()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made: {error.strerror}"
        raise UserError(what, where=str(folder), fix="name a folder of yours") from error
    write_text(target, template)
    print(f"wrote {target}; next: hpcjf check {target}")


@app.command()
def check(
    study: Annotated[Path, typer.Argument(help="Study file.", metavar="STUDY", readable=False)],
    executor: Executor = None,
) -> None:
    """Validate a study before a job is submitted: file, models, data, and every model's resources at the site."""
    from hpcjf.analysis.dead import dead_dimensions
    from hpcjf.preflight import ready
    from hpcjf.store.layout import RunLayout

    file = _study_file(study)
    resolved, _ = ready(file, executor.value if executor else None, RunLayout((file.parent / "run").absolute()))
    for name, reason in dead_dimensions(resolved).items():
        print(f"warning: space.{name} is dead: {reason}")
    print("ready; next: hpcjf run " + str(study))


@app.command()
def plan(
    study: Annotated[Path, typer.Argument(help="Study file, or its folder.", metavar="STUDY", readable=False)],
    seconds_per_step: Annotated[
        list[str] | None, typer.Option(help="Seconds of a global step; once a model.", metavar="MODEL=SECONDS")
    ] = None,
    timed: Annotated[Path | None, typer.Option("--from", help="A run that timed these models.", metavar="RUN")] = None,
) -> None:
    """Say what a study would run and cost, and which dimensions are dead. Submits, downloads and changes nothing."""
    from hpcjf.planned import show_plan

    show_plan(_study_file(study), seconds_per_step or [], timed and _run_root(timed))


@app.command()
def run(
    path: Annotated[
        Path,
        typer.Argument(
            help="Study file, its folder, or a run directory to resume.", metavar="STUDY|RUN", readable=False
        ),
    ],
    executor: Executor = None,
    run_dir: Annotated[Path | None, typer.Option(help="Run directory; default: run beside the study file.")] = None,
) -> None:
    """Run a study, or resume one. Ctrl-C once detaches (jobs go on), twice stops."""
    from hpcjf.controller.start import drive, opened, resume
    from hpcjf.core.lifecycle import Phase
    from hpcjf.store.frozen import load_frozen
    from hpcjf.store.layout import RunLayout

    if is_run(path):
        from hpcjf.cluster.detect import detect

        layout = RunLayout(path.absolute())
        frozen = load_frozen(layout)
        cluster, why = detect(executor.value if executor else frozen.cluster.executor, layout.local_jobs)
        print(f"executor: {cluster.name} ({why})")
        # later commands ask the executor that has the jobs
        study = frozen.model_copy(update={"cluster": frozen.cluster.model_copy(update={"executor": cluster.name})})
    else:
        from hpcjf.preflight import ready

        file = _study_file(path)
        layout = RunLayout((run_dir or file.parent / "run").absolute())
        study, cluster = ready(file, executor.value if executor else None, layout)
    with opened(layout, study, cluster) as controller:
        resume(controller)
        print(f"run directory: {layout.root}")
        if controller.state.phase is Phase.DONE:
            print("the study is done: higher limits do not reopen it; to search on, name another --run-dir")
        with _shown(study) as show:
            outcome = drive(controller, show, _interrupts())
        state = controller.state
    _farewell(outcome, layout.root, state.phase_reason)


def _farewell(outcome: str, root: Path, reason: str) -> None:
    if outcome == "detached":
        print(f"detached: jobs go on. Resume with: hpcjf run {root}   Look with: hpcjf status {root}")
        return
    subprocess.run([sys.executable, "-m", "hpcjf.analysis.report", str(root)], check=False)
    if outcome == "stopped":
        raise HpcjfError(f"stopped: {reason}", fix=f"resume with: hpcjf run {root}")


@app.command()
def status(
    run: Run,
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking until the study is over.")] = False,
    why: Annotated[int | None, typer.Option(help="Say why this trial was chosen.", metavar="TRIAL")] = None,
) -> None:
    """Show a study, also while it runs or after its controller died. Changes nothing."""
    with nullcontext() if watch else _uncollected():
        from hpcjf.watching import explain_trial, show_status, watch_status

        root = _run_root(run)
        if why is not None:
            explain_trial(root, why)
        elif watch:
            watch_status(root)
        else:
            show_status(root)


@contextmanager
def _uncollected() -> Iterator[None]:
    """For one look: garbage collections while modules load and at exit are a fifth of its CPU time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@app.command()
def stop(
    run: Run, now: Annotated[bool, typer.Option("--now", help="Also cancel our jobs; they save first.")] = False
) -> None:
    """No new jobs; the study can be resumed with hpcjf run RUN."""
    from hpcjf.controller.history import state_of
    from hpcjf.core.lifecycle import Phase
    from hpcjf.errors import LockTimeoutError
    from hpcjf.store.layout import RunLayout
    from hpcjf.store.locks import Lock
    from hpcjf.store.messages import StopRequest

    layout = RunLayout(_run_root(run))
    layout.check_owner()
    if state_of(layout)[0].phase is Phase.DONE:
        print("the study is done: nothing to stop")
        return
    StopRequest(now=now).write(layout.stop_request)
    try:
        with Lock(layout.lock, timeout=0.5):
            pass
    except LockTimeoutError:
        print(f"asked the running controller to stop{' now' if now else ''}; watch: hpcjf status {layout.root}")
    else:
        _stop_without_controller(layout, now)


def _stop_without_controller(layout: RunLayout, now: bool) -> None:
    """Where no controller is there to obey, obey in its place."""
    from hpcjf.cluster.detect import detect
    from hpcjf.controller.start import drive, opened
    from hpcjf.store.frozen import load_frozen

    study = load_frozen(layout)
    cluster, _ = detect(study.cluster.executor, layout.local_jobs)
    with opened(layout, study, cluster, lock_seconds=0.5) as controller:
        if now:
            outcome = drive(controller, lambda _: None, _interrupts())
        else:
            controller.tick()
            outcome = "stopped"
        print(f"{outcome}; resume with: hpcjf run {layout.root}")


@app.command()
def sbatch(
    path: Annotated[Path, typer.Argument(help="Study file, or its folder.", metavar="STUDY")],
    minutes: Annotated[int, typer.Option(help="Wall-time limit of the controller's job.", min=1)] = 720,
) -> None:
    """Print a batch script that runs the controller as a small job: hpcjf sbatch STUDY | sbatch."""
    from hpcjf.cluster.template import controller_script
    from hpcjf.config import read_study

    file = _study_file(path)
    study, _ = read_study(file)
    small = {
        "time_minutes": minutes,
        "cpus": 1,
        "gpus": None,
        "nodes": None,
        "processes": None,
        "mem_gb": 1,
        "mem_per_cpu_gb": None,
        "mem_per_gpu_gb": None,
    }
    script = controller_script(
        name=f"hpcjf-{study.study.name}",
        program=Path(sys.executable).with_name("hpcjf"),
        run=file.parent.absolute(),
        resources=study.cluster.model_copy(update=small),
        signal_seconds=60,
    )
    print(script, end="")


@app.command()
def report(
    run: Run, out: Annotated[Path | None, typer.Option(help="File to write; default: report.html in RUN.")] = None
) -> None:
    """Write one self-contained HTML file about a study, at any time."""
    from hpcjf.analysis.report import headline, write_report

    root = _run_root(run)
    print(headline(root))
    print(f"report: {write_report(root, out)}")


@app.command()
def best(run: Run) -> None:
    """Print the winning configuration as YAML."""
    import yaml

    from hpcjf.controller.history import state_of
    from hpcjf.store.layout import RunLayout

    state, _ = state_of(RunLayout(_run_root(run)))
    if not state.incumbents:
        raise UserError("no trial has ended yet", where=str(run), fix="look again later: hpcjf status " + str(run))
    incumbent = state.incumbents[-1]
    score = "none yet" if incumbent.score is None else f"{incumbent.score:.4f}"
    print(f"# configuration {incumbent.config_id}, validation score {score}, study {state.phase}")
    print(yaml.safe_dump(dict(incumbent.config), sort_keys=False), end="")


def is_run(path: Path) -> bool:
    return os.path.isfile(path / "study.yaml") and os.path.isdir(path / "journal")


def _run_root(path: Path) -> Path:
    for candidate in (path, path / "run", path.parent / "run" if path.is_file() else path):
        if is_run(candidate):
            return candidate.absolute()
    raise UserError("not a run directory", where=str(path), fix="hpcjf run STUDY makes one")


def _study_file(path: Path) -> Path:
    return path / "study.yaml" if path.is_dir() else path


def _interrupts() -> dict[str, int]:
    counter = {"count": 0}

    def note(*_: object) -> None:
        counter["count"] += 1
        text = "detaching; press Ctrl-C again within 3 s to stop the study and cancel its jobs"
        if counter["count"] == 1:
            os.write(2, f"\nhpcjf: {text}\n".encode())

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    return counter


def _shown(study: Study) -> Any:
    from hpcjf.watching import shown

    return shown(study)


if __name__ == "__main__":
    main()
