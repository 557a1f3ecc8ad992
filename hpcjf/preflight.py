"""What ``hpcjf check`` and ``hpcjf run`` find out before anything is trained or submitted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hpcjf.cluster.base import Cluster
from hpcjf.cluster.detect import detect
from hpcjf.config import at_line, line_of, read_study
from hpcjf.controller.earlier import read_earlier
from hpcjf.errors import ClusterError, NotPermittedError, UserError
from hpcjf.resolve import resolve_study
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study
from hpcjf.tasks import load_task


def ready(file: Path, executor: Literal["auto", "slurm", "local"] | None, layout: RunLayout) -> tuple[Study, Cluster]:
    """Study and cluster, resolved and checked; says what it found. Raises UserError, ClusterError."""
    _writable(layout)
    given, lines = read_study(file)
    study = resolve_study(given, file, lines)
    with at_line(file, lines):
        data = load_task(study.task)
        earlier = None if layout.study.exists() else read_earlier(study, layout.root)
    sizes = f"{len(data.train)} train, {len(data.validation)} validation, {len(data.test)} test rows"
    print(f"task {', '.join(study.task.names)}: {sizes}")
    for note in data.notes:
        print(f"  {note}")
    if earlier is not None:
        print(f"warm start: {len(earlier.observations)} trials of {study.search.warm_start}")
    for model in study.models:
        print(f"model {model.name}: {model.parameters:,} parameters, {model.path}")
    if executor is None:
        with at_line(file, lines):
            cluster, why = detect(study.cluster.executor, layout.local_jobs)
    else:
        cluster, why = detect(executor, layout.local_jobs)
    print(f"executor: {cluster.name} ({why})")
    if cluster.name == "slurm":
        from hpcjf.cluster.slurm import check_folder  # submitit

        check_folder(layout.root)
    for index, model in enumerate(study.models):
        own = ("models", index, "resources")
        with _site_refuses(model.name, line_of(file, lines, own if own in lines else ("cluster",))):
            cluster.check(model.resources.over(study.cluster))
    return study.model_copy(update={"cluster": study.cluster.model_copy(update={"executor": cluster.name})}), cluster


@contextmanager
def _site_refuses(model: str, where: str) -> Iterator[None]:
    """Keeps the site's own text and says for which model, and where that asks for what was refused."""
    try:
        yield
    except ClusterError as error:
        raise type(error)(f"model {model}: {error.where}: {error.what}", where=where, fix=error.fix) from error


def _writable(layout: RunLayout) -> None:
    """Fail before a model is trained or a job submitted, not after it."""
    root = layout.root
    nearest = next(folder for folder in (root, *root.parents) if os.path.lexists(folder))
    if not nearest.is_dir():
        raise UserError("is no folder", where=str(nearest), fix="name another run directory with --run-dir")
    layout.check_owner()
    if not os.access(nearest, os.W_OK | os.X_OK):
        fix = "name a folder of yours with --run-dir, or mend its permissions"
        raise NotPermittedError("no permission to write here", where=str(nearest), fix=fix)
