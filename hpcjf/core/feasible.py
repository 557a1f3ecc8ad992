"""How much of a space its constraints leave, without scikit-optimize: a study is checked on a login node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpcjf.core.conditions import Conditions
from hpcjf.core.constraints import Constraint
from hpcjf.study import Categorical, Dimension, IntegerRange
from hpcjf.types import Scalar

DRAWS = 10_000


def shares_left(
    dimensions: Mapping[str, Dimension], constraints: Sequence[str], fixed: Mapping[str, Scalar]
) -> list[float]:
    """Share of the space that the first 1, 2, … constraints leave, of 10,000 configurations drawn from the priors."""
    rng = np.random.default_rng(0)
    columns = {name: _drawn(dimension, rng) for name, dimension in dimensions.items()}
    conditions = Conditions(dimensions, fixed)
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    left = [{**fixed, **conditions.prune(row)} for row in rows]
    shares = []
    for text in constraints:
        constraint = Constraint(text, {**fixed, **dimensions})
        left = [values for values in left if constraint.holds(values)]
        shares.append(len(left) / DRAWS)
    return shares


def _drawn(dimension: Dimension, rng: np.random.Generator) -> list[Scalar]:
    """10,000 values, log-uniform where asked."""
    if isinstance(dimension, Categorical):
        return [dimension.choices[i] for i in rng.integers(len(dimension.choices), size=DRAWS)]
    whole = isinstance(dimension, IntegerRange)
    if dimension.log:
        drawn = np.exp(rng.uniform(np.log(dimension.low), np.log(dimension.high), DRAWS))
    else:  # both bounds of a whole range as likely as what lies between
        drawn = rng.uniform(dimension.low - 0.49 * whole, dimension.high + 0.49 * whole, DRAWS)
    return [round(value) for value in drawn] if whole else drawn.tolist()
