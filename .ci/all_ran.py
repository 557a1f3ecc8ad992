"""Ends with 1 where a junit file shows that tests of a Slurm cluster or of real data did not run."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

NEEDS = ("slurm", "data")


def faults(junit: Path) -> list[str]:
    """One line for every test that was left out, and for every need that no test has."""
    if not junit.is_file():
        return [f"{junit} is missing: pytest did not run"]
    ran = dict.fromkeys(NEEDS, 0)
    found = []
    for case in ElementTree.parse(junit).iter("testcase"):  # noqa: S314  pytest has just written it
        needs = {p.get("value") for p in case.iter("property") if p.get("name") == "needs"} & set(NEEDS)
        skipped = case.find("skipped")
        if needs and skipped is not None:
            found.append(f"left out: {case.get('classname')}::{case.get('name')}: {skipped.get('message')}")
        for need in needs if skipped is None else ():
            ran[need] += 1
    return found + [f"no test of {need} ran" for need, count in ran.items() if not count]


def main() -> int:
    found = faults(Path(sys.argv[1]))
    print("\n".join(found) or "every test of Slurm and of real data ran")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
