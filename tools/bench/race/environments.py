"""The peers' virtual environments: their libraries need different versions of the same packages, and none of ours.

An environment is made once, at ``bench/PEER`` in the cache folder (HPCJF_CACHE, else ~/.cache/hpcjf), with the versions
in ``peers/requirements/PEER.txt``, and made anew where those have changed. NePS is left out: it needs 6 GB, with a CUDA
build of torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

from hpcjf.errors import HpcjfError
from race.peer import Peer

_PEERS = Path(__file__).with_name("peers")
VARIANTS = {
    "optuna": ("tpe-hyperband", "tpe"),
    "hpbandster": ("bohb", "hyperband"),
    "smac": ("multi-fidelity",),
    "syne": ("asha", "bohb", "cqr"),
    "skopt": ("gp",),
}
"""What each peer can be started as."""


def peer_of(name: str, variant: str) -> Peer:
    """Its environment has to be there: see ``ready`` and ``prepare``."""
    return Peer(f"{name} {variant}", _python(name), _PEERS / f"{name}_peer.py", variant)


def ready(peer: str) -> bool:
    mark = _folder(peer) / "complete"
    return mark.exists() and mark.read_text() == _requirements(peer).read_text()


def prepare(peer: str) -> None:
    """Make the environment of ``peer`` where it is not ready; minutes. Raises HpcjfError with pip's own words."""
    folder = _folder(peer)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{peer}.lock")):
        if ready(peer):
            return
        start = time.monotonic()
        _note(f"{peer}: installing into {folder}")
        _run(peer, sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
        # the list is complete; what it leaves out on purpose is only for GPUs or the network
        pip = (sys.executable, "-m", "pip", "--python", str(_python(peer)), "--disable-pip-version-check")
        _run(peer, *pip, "install", "-q", "--no-deps", "-r", str(_requirements(peer)))
        (folder / "complete").write_text(_requirements(peer).read_text())
        _note(f"{peer}: ready after {time.monotonic() - start:.0f} s")


def _run(peer: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        fix = "see that pip finds its packages and start again"
        raise HpcjfError(said[-1] if said else f"exit code {done.returncode}", where=f"environment of {peer}", fix=fix)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _folder(peer: str) -> Path:
    cache = os.environ.get("HPCJF_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache" / "hpcjf") / "bench" / peer


def _python(peer: str) -> Path:
    return _folder(peer) / "bin" / "python"


def _requirements(peer: str) -> Path:
    return _PEERS / "requirements" / f"{peer}.txt"
