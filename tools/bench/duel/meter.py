"""What a trainer's process says about itself. CPU time is that of all its threads, since it began."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass
class Reading:
    """Figures of one process.

    ``step_cpu_s`` holds the CPU time at the end of each global step; ``peak_mb`` is the process's largest memory
    (VmHWM, 2**20 bytes) at the end of the last step; ``checkpoint_bytes`` includes all that a resume needs.
    """

    import_cpu_s: float = 0.0
    ready_cpu_s: float = 0.0
    step_cpu_s: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    checkpoint_bytes: int = 0
    threads: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def step_done(self) -> None:
        self.step_cpu_s.append(time.process_time())
        self.peak_mb = _peak_mb()

    def write(self, folder: str) -> None:
        (Path(folder) / "reading.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(**json.loads((folder / "reading.json").read_text()))


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _peak_mb() -> float:
    """VmHWM; ru_maxrss would count what the parent held at the fork."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "no /proc/self/status"
    return int(found[1]) / 1024
