"""The table of objectives: against the documentation, and against the defaults of a study."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from hpcjf.study import AlgorithmSection, ObjectiveName
from hpcjf.training.objectives.table import OBJECTIVES, Objective, PolicyGradient, Preference, Supervised

PAGE = (Path(__file__).parents[3] / "docs/objectives.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| .* \| ([\d.]+) \| (.*) \|$", PAGE, re.M)}


def defaults(objective: Objective) -> str:
    """An entry's numbers in the words of the page."""
    if isinstance(objective, Preference):
        return f"β {objective.beta:g}" + (f", γ {objective.margin:g}" if objective.margin else "")
    if not isinstance(objective, PolicyGradient):
        return "–"
    kl = objective.kl
    parts = [f"clip {objective.clip_low:g}, {objective.clip_high:g}"]
    parts.append(f"KL in the {kl.place}, {kl.coefficient:g} {kl.estimator}" if kl.coefficient else "no KL")
    if objective.critic:
        critic = objective.critic
        parts.append(f"critic: λ {critic.decay:g}, clip {critic.clip:g}, c {critic.coefficient:g}")
    if objective.hargo:
        parts.append(f"α {objective.hargo.alpha:g}, ρ {objective.hargo.decay:g}")
    return "; ".join(parts)


def test_the_page_lists_exactly_the_objectives_in_their_order() -> None:
    assert list(ROWS) == list(OBJECTIVES)
    assert len(ROWS) == 12


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_page_has_paper_and_defaults_of(name: str) -> None:
    assert ROWS[name] == (OBJECTIVES[name].paper, defaults(OBJECTIVES[name]))


def test_a_study_may_use_every_objective_on_samples_and_starts_with_grpo() -> None:
    names = get_args(ObjectiveName)
    assert names == tuple(name for name, one in OBJECTIVES.items() if not isinstance(one, Supervised))
    assert AlgorithmSection().objective == "grpo"


def test_only_dapo_draws_groups_anew_and_only_ppo_has_a_critic() -> None:
    policy = {name: one for name, one in OBJECTIVES.items() if isinstance(one, PolicyGradient)}
    assert [name for name, one in policy.items() if one.dynamic_sampling] == ["dapo"]
    assert [name for name, one in policy.items() if one.critic] == ["ppo"]
    assert [name for name, one in policy.items() if one.hargo] == ["hargo"]


def test_the_table_loads_no_torch() -> None:
    code = "import sys, hpcjf.training.objectives.table; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
