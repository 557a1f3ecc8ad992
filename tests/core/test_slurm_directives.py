"""Directives: all that a site may want can be set or left out; nothing else reaches a batch script."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjf.core.slurm_directives import directives, omitted
from hpcjf.errors import PermanentClusterError
from hpcjf.study import Resources


def unchecked(**values: object) -> Resources:
    """Resources past the study's own checks: the last line of defence is tested here."""
    return Resources.model_construct(**(Resources().model_dump() | values))


def test_every_resource_has_its_directive() -> None:
    resources = Resources(partition="gpu", account="a1", qos="long", time_minutes=90, cpus=4, gpus=2, mem_gb=1.5)
    assert directives(resources) == {
        "partition": "gpu",
        "account": "a1",
        "qos": "long",
        "time": "90",
        "cpus-per-task": "2",
        "gpus-per-node": "2",
        "ntasks-per-node": "2",
        "mem": "1536M",
    }


def test_nothing_is_asked_for_unasked() -> None:
    """S19: a hard-coded --mem or --cpus-per-task is refused by some sites."""
    assert directives(Resources()) == {}
    assert directives(Resources(gpus=0)) == {}
    assert omitted(Resources()) == {"wckey", "time"}


@pytest.mark.parametrize(
    ("resources", "name"),
    [(Resources(mem_per_cpu_gb=2), "mem-per-cpu"), (Resources(mem_per_gpu_gb=2), "mem-per-gpu")],
)
def test_memory_has_three_forms(resources: Resources, name: str) -> None:
    assert directives(resources) == {name: "2048M"}


def test_the_sites_own_directives_are_added_and_win() -> None:
    resources = Resources(
        gpus=2,
        mem_gb=4,
        partition="gpu",
        skip_directives=("gpus_per_node",),
        extra_directives={"gres": "gpu:a100:2", "mem_per_gpu": "16G", "partition": "big", "--no-requeue": ""},
    )
    assert directives(resources) == {
        "gres": "gpu:a100:2",
        "mem-per-gpu": "16G",
        "partition": "big",
        "no-requeue": "",
        "ntasks-per-node": "2",
    }


@pytest.mark.parametrize("name", ["time", "mem", "signal", "output", "wckey", "nodes", "cpus-per-task"])
def test_any_directive_can_be_left_out(name: str) -> None:
    """S19."""
    resources = Resources(time_minutes=5, mem_gb=1, cpus=1, extra_directives={"wckey": "w"}, skip_directives=(name,))
    assert name in omitted(resources)
    assert name not in directives(resources)


@pytest.mark.parametrize("name", ["job-name", "memory", "", "xmem\n"])
def test_what_is_skipped_must_be_a_directive(name: str) -> None:
    with pytest.raises(PermanentClusterError, match="skip_directives"):
        omitted(Resources(skip_directives=(name,)))


@pytest.mark.parametrize(
    "name",
    ["wrap", "array", "job-name", "output", "error", "uid", "chdir", "dependency", "clusters", "hold", "mem\n#", "a b"],
)
def test_names_outside_the_whitelist_are_refused(name: str) -> None:
    with pytest.raises(PermanentClusterError, match="not a directive that a study may set"):
        directives(Resources(extra_directives={name: "1"}))


@pytest.mark.parametrize(
    "value", ["gpu\nrm -rf x", "gpu\r", "a\tb", "`id`", "$(id)", "'x", '"x', "a\\b", "a\x85b", "a\u2028b", "x" * 1001]
)
def test_values_that_could_leave_their_line_are_refused(value: str) -> None:
    """A newline in a directive would be an executed line of the batch script."""
    for resources in (unchecked(partition=value), unchecked(extra_directives={"comment": value})):
        with pytest.raises(PermanentClusterError, match="cluster"):
            directives(resources)


@pytest.mark.parametrize("value", ["a100&ib", "[rack1|rack2]", "node[1-4],node7", "gpu:a100:2", "a b", "50%", "é"])
def test_values_that_sites_use_pass(value: str) -> None:
    assert directives(Resources(extra_directives={"constraint": value})) == {"constraint": value}


@pytest.mark.parametrize("name", ["nodes", "ntasks", "ntasks_per_node"])
def test_extra_directives_start_no_copies(name: str) -> None:
    assert directives(Resources(extra_directives={name: "1"}))
    with pytest.raises(PermanentClusterError, match="several copies"):
        directives(Resources(extra_directives={name: "2"}))


def test_processes_and_nodes_are_tasks_and_share_the_cores() -> None:
    assert directives(Resources(processes=1, nodes=1)) == {}
    found = directives(Resources(processes=3, nodes=2, cpus=8, gpus=4))
    assert (found["nodes"], found["ntasks-per-node"], found["cpus-per-task"]) == ("2", "3", "2")


def test_two_memory_forms_are_refused_before_sbatch_does() -> None:
    with pytest.raises(PermanentClusterError, match="exclude each other"):
        directives(Resources(extra_directives={"mem": "1G", "mem-per-cpu": "1G"}))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3))
def test_whatever_passes_is_one_line(extra: dict[str, str]) -> None:
    try:
        chosen = directives(unchecked(extra_directives=extra))
    except PermanentClusterError:
        return
    assert all(len(f"{name}={value}".splitlines()) == 1 for name, value in chosen.items())
