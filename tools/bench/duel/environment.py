"""The interpreter of TRL's side: the running one where trl is installed, else an environment made once.

That environment, ``bench/trl`` in the cache folder (HPCJF_CACHE, else ~/.cache/hpcjf), adds trl and what it lacks to
the packages of the running interpreter, so that both sides compute with the same torch and transformers.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from filelock import FileLock

from hpcjf.errors import HpcjfError

_CONSTRAINTS = Path(__file__).resolve().parents[3] / "configs" / "constraints.txt"


def trl_python() -> Path:
    """May take minutes. Raises HpcjfError with pip's own words."""
    if importlib.util.find_spec("trl"):
        return Path(sys.executable)
    cache = Path(os.environ.get("HPCJF_CACHE") or Path.home() / ".cache" / "hpcjf")
    folder = cache / "bench" / "trl"
    folder.parent.mkdir(parents=True, exist_ok=True)
    packages = sysconfig.get_path("purelib")
    pinned = re.findall(r"^(?:trl|datasets|accelerate)==.*", _CONSTRAINTS.read_text(), re.MULTILINE)
    mark, wanted = folder / "complete", "\n".join([packages, *pinned])
    with FileLock(folder.with_name("trl.lock")):
        if not (mark.exists() and mark.read_text() == wanted):
            print(f"trl: installing into {folder}", file=sys.stderr, flush=True)
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            own = sysconfig.get_path("purelib", vars={"base": str(folder)})
            (Path(own) / "beside.pth").write_text(f"{packages}\n")
            _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *pinned)
            mark.write_text(wanted)
    return folder / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        fix = "see that pip finds its packages and start again"
        raise HpcjfError(said[-1] if said else f"exit code {done.returncode}", where="environment of trl", fix=fix)
