import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcjf.core.identity import config_id, plain
from hpcjf.errors import StudyError


def test_numpy_scalars_become_python_scalars() -> None:
    values = [plain(np.int64(3)), plain(np.float64(0.5)), plain(np.str_("cosine")), plain(np.bool_(True))]
    assert [type(value) for value in values] == [int, float, str, bool]
    assert values == [3, 0.5, "cosine", True]


def test_floats_keep_twelve_significant_digits() -> None:
    assert plain(0.1234567890123456) == 0.123456789012
    assert plain(1.0000000000001e-7) == 1e-7


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_a_float_twice_changes_nothing(value: float) -> None:
    assert plain(plain(value)) == plain(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1]])
def test_values_that_no_configuration_can_hold_are_refused(value: object) -> None:
    with pytest.raises(StudyError, match="no value of a configuration"):
        plain(value)


def test_the_identity_is_pinned_so_that_old_run_directories_stay_readable() -> None:
    assert config_id({"learning_rate": 1e-6, "rollouts": 5, "lr_scheduler": "constant"}) == "429e8e763fca"


def test_the_identity_ignores_order_and_numpy_types() -> None:
    left = config_id({"a": 1, "b": 0.25})
    assert left == config_id({"b": np.float64(0.25), "a": np.int64(1)})
    assert len(left) == 12
    assert set(left) <= set("0123456789abcdef")


def test_different_values_and_types_get_different_identities() -> None:
    configs = [{"a": 1}, {"a": 2}, {"a": True}, {"a": "1"}, {"b": 1}, {"a": 1.5}, {}]
    assert len({config_id(config) for config in configs}) == len(configs)


def test_the_light_modules_load_neither_skopt_nor_sklearn() -> None:
    code = (
        "import sys, hpcjf.core.identity, hpcjf.core.fidelity, hpcjf.core.stopping;"
        "sys.exit(any(name.split('.')[0] in ('skopt', 'sklearn', 'scipy', 'torch') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
