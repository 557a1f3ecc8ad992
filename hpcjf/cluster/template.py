"""The batch scripts under ``slurm_templates``, filled from values that cannot break out of their line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources as packaged
from pathlib import Path
from string import Template

from hpcjf.core.slurm_directives import directives, omitted
from hpcjf.errors import PermanentClusterError
from hpcjf.study import Resources


def render(template: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """The template's text with every ``${placeholder}`` filled: a text as one quoted shell word, a list as lines.

    Raises PermanentClusterError on a control character, and where placeholders and values do not match one to one.
    """
    text = packaged.files("hpcjf.slurm_templates").joinpath(template).read_text(encoding="utf-8")
    form = Template(text)
    differing = set(form.get_identifiers()) ^ values.keys()
    if differing or not form.is_valid():
        raise PermanentClusterError(f"placeholders and values differ: {', '.join(sorted(differing))}", where=template)
    return form.substitute({name: _filled(name, value, template) for name, value in values.items()})


def _filled(name: str, value: str | Sequence[str], template: str) -> str:
    lines = [value] if isinstance(value, str) else list(value)
    if any(re.search(r"[\x00-\x1f\x7f]", line) for line in lines):
        raise PermanentClusterError(f"{name} holds a control character", where=template, fix="use text of one line")
    return shlex.quote(value) if isinstance(value, str) else "\n".join(lines)


def directive_lines(resources: Resources) -> list[str]:
    """The ``#SBATCH`` lines of these resources; raises PermanentClusterError on what sbatch must not see."""
    omitted(resources)
    chosen = directives(resources)
    return [
        f"#SBATCH --{name}={shlex.quote(value)}" if value else f"#SBATCH --{name}" for name, value in chosen.items()
    ]


def controller_script(*, name: str, program: Path, run: Path, resources: Resources, signal_seconds: int) -> str:
    """A batch script in which ``program`` (the hpcjf command) drives the study in ``run`` as a job named ``name``."""
    return render(
        "controller.sbatch",
        {
            "name": name,
            "output": str(run / "controller-%j.log"),
            "signal": f"B:TERM@{signal_seconds}",
            "directives": directive_lines(resources),
            "setup": list(resources.setup or ()),
            "program": str(program),
            "run": str(run),
        },
    )
