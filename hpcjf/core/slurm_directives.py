"""From the study's resources to sbatch directives: a whitelist of names, values of one harmless line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcjf.errors import PermanentClusterError
from hpcjf.study import Resources

_WRITTEN = frozenset({"error", "job-name", "nodes", "open-mode", "output", "signal"})
"""Written for every job; may be left out but not set, apart from ``nodes``. The name finds a lost job again."""

_NAMES = """
    account acctg-freq bb begin cluster-constraint comment constraint container contiguous core-spec
    cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot distribution exclude exclusive export
    extra-node-info get-user-env gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags
    hint licenses mail-type mail-user mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-requeue nodelist
    nodes ntasks ntasks-per-core ntasks-per-node ntasks-per-socket oversubscribe partition power prefer priority
    profile propagate qos requeue reservation segment sockets-per-node spread-job switches thread-spec
    threads-per-core time time-min tmp tres-bind tres-per-task use-min-nodes wckey
"""
_ALLOWED = frozenset(_NAMES.split())
_ONE_TASK = ("nodes", "ntasks", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core")
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_VALUE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029`\"'\\$]{0,1000}")
# Defaults that submitit would write unasked: sites refuse its wckey, and its time limit is 5 minutes.
_UNASKED = frozenset({"wckey", "time"})


def directives(resources: Resources) -> dict[str, str]:
    """Directive → value, an empty value being a flag; skipped ones left out. ``gpus`` of 0 asks for none.

    Raises PermanentClusterError on a name or value that sbatch must not see.
    """
    wanted = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "time": resources.time_minutes,
        "cpus-per-task": resources.cpus and max(1, resources.cpus // resources.tasks),
        "nodes": resources.nodes if (resources.nodes or 1) > 1 else None,
        "ntasks-per-node": resources.tasks if resources.tasks > 1 else None,
        "gpus-per-node": resources.gpus or None,
        "mem": _megabytes(resources.mem_gb),
        "mem-per-cpu": _megabytes(resources.mem_per_cpu_gb),
        "mem-per-gpu": _megabytes(resources.mem_per_gpu_gb),
    }
    merged = {name: str(value) for name, value in wanted.items() if value is not None}
    extra = {_normal(name): value for name, value in (resources.extra_directives or {}).items()}
    if any(name in _MEMORY for name in extra):
        merged = {name: value for name, value in merged.items() if name not in _MEMORY}
    for name in _ONE_TASK:
        if extra.get(name, "1") != "1":
            what = f"{name} = {extra[name]!r} would start several copies of a trial"
            raise _refused(
                what, f"leave {name} out or set 1; processes and nodes of a trial have settings of their own"
            )
    merged |= extra
    for name in _skips(resources):
        merged.pop(name, None)
    _validate(merged)
    return merged


def omitted(resources: Resources) -> frozenset[str]:
    """Directives that must not stand in the script, whoever would write them. Raises as ``directives`` does."""
    skips = _skips(resources)
    for name in skips:
        if name not in _ALLOWED | _WRITTEN or name == "job-name":
            raise _refused(f"skip_directives cannot leave out {name!r}", "name a directive such as mem or wckey")
    return skips | (_UNASKED - directives(resources).keys())


def _skips(resources: Resources) -> frozenset[str]:
    return frozenset(_normal(name) for name in resources.skip_directives or ())


def _normal(name: str) -> str:
    return name.strip().removeprefix("--").replace("_", "-").lower()


def _megabytes(gigabytes: float | None) -> str | None:
    return None if gigabytes is None else f"{max(1, round(gigabytes * 1024))}M"


def _validate(merged: Mapping[str, str]) -> None:
    for name, value in merged.items():
        if name not in _ALLOWED:
            raise _refused(f"{name!r} is not a directive that a study may set", "see extra_directives in the manual")
        if _VALUE.fullmatch(value) is None:
            raise _refused(
                f"{name} = {value[:80]!r} holds a control character, quote, backtick, backslash or dollar sign",
                "write a plain value of one line",
            )
    memory = [name for name in _MEMORY if name in merged]
    if len(memory) > 1:
        raise _refused(f"{' and '.join(memory)} exclude each other", "keep one")


def _refused(what: str, fix: str) -> PermanentClusterError:
    return PermanentClusterError(what, where="cluster", fix=fix)
