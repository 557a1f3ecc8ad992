"""Batch scripts from templates: filled whole, one line a value."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcjf.cluster.template import controller_script, directive_lines, render
from hpcjf.errors import PermanentClusterError
from hpcjf.study import Resources


def script(run: str = "/data/run 1", **resources: Any) -> str:
    chosen = Resources.model_construct(**(Resources().model_dump() | resources))
    return controller_script(
        name="study-1", program=Path("/bin/echo"), run=Path(run), resources=chosen, signal_seconds=120
    )


def test_the_controller_is_a_job_of_its_own() -> None:
    """S21, P26: for sites that allow no long process on a login node."""
    lines = script(partition="low", time_minutes=30, setup=("module load python",)).splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in ("job-name=study-1", "dependency=singleton", "partition=low", "time=30", "signal=B:TERM@120"):
        assert f"#SBATCH --{line}" in lines
    assert lines.index("module load python") > max(n for n, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert lines[-1] == "exec /bin/echo run '/data/run 1'"


def test_the_script_is_one_that_bash_runs() -> None:
    done = subprocess.run(["bash"], input=script("/a b/$(id)"), capture_output=True, text=True, check=True)
    assert done.stdout == "run /a b/$(id)\n"


@pytest.mark.parametrize("run", ["/a\nb", "/a\rb", "/a\x00b", "/a\tb", "/a\x7f"])
def test_control_characters_are_refused(run: str) -> None:
    with pytest.raises(PermanentClusterError, match="control character"):
        script(run)


@pytest.mark.parametrize(
    "resources", [{"setup": ("a\nb",)}, {"partition": "a\nb"}, {"extra_directives": {"wrap": "x"}}]
)
def test_resources_are_checked_on_the_way(resources: dict[str, Any]) -> None:
    with pytest.raises(PermanentClusterError):
        script(**resources)


@pytest.mark.parametrize("values", [{}, {"directives": [], "extra": "x"}, {"wrong": "x"}])
def test_placeholders_and_values_must_match(values: dict[str, str]) -> None:
    with pytest.raises(PermanentClusterError, match="placeholders and values differ"):
        render("directives.sbatch", values)


def test_a_flag_has_no_value_and_a_value_is_quoted() -> None:
    lines = directive_lines(Resources(extra_directives={"exclusive": "", "constraint": "a&b"}))
    assert lines == ["#SBATCH --exclusive", "#SBATCH --constraint='a&b'"]
