import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjf.core.identity import config_id
from hpcjf.core.space import Space
from hpcjf.errors import StudyError
from hpcjf.study import Categorical, IntegerRange, RealRange
from hpcjf.types import Config


@pytest.fixture
def space() -> Space:
    return Space(
        {
            "learning_rate": RealRange(low=1e-6, high=1e-2, log=True),
            "clip_range": RealRange(low=0.05, high=0.4),
            "rollouts": IntegerRange(type="integer", low=4, high=12),
            "lr_scheduler": Categorical(type="categorical", choices=("constant", "cosine")),
            "mixed": Categorical(type="categorical", choices=(True, 1, 0.5, "one")),
        }
    )


def all_plain(config: Config) -> bool:
    return all(type(value) in (bool, int, float, str) for value in config.values())


def test_samples_are_plain_inside_and_survive_json(space: Space) -> None:
    for config in space.sample(50, np.random.default_rng(0)):
        assert tuple(config) == space.names
        assert all_plain(config)
        assert space.contains(config)
        assert config_id(json.loads(json.dumps(config))) == config_id(config)
        assert space.canonical(config) == config


def test_samples_depend_on_the_generator_alone(space: Space) -> None:
    np.random.seed(1)
    first = space.sample(3, np.random.default_rng(7))
    np.random.seed(2)
    assert space.sample(3, np.random.default_rng(7)) == first
    assert space.sample(3, np.random.default_rng(8)) != first


def test_a_log_range_is_sampled_evenly_over_its_decades(space: Space) -> None:
    rates = [config["learning_rate"] for config in space.sample(2000, np.random.default_rng(0))]
    counts = np.histogram(np.log10(np.array(rates, dtype=float)), bins=4, range=(-6, -2))[0]
    assert counts.sum() == 2000
    assert counts.min() > 400


def test_mixed_choices_keep_their_types(space: Space) -> None:
    drawn = {repr(config["mixed"]) for config in space.sample(100, np.random.default_rng(0))}
    assert drawn == {"True", "1", "0.5", "'one'"}


def test_space_filling_covers_each_range_once_per_stratum(space: Space) -> None:
    design = space.space_filling(8, seed=3)
    column = space.encode(design)[:, 0]
    assert sorted((column * 8).astype(int)) == list(range(8))
    assert design == space.space_filling(8, seed=3)
    assert design != space.space_filling(8, seed=4)
    assert space.space_filling(0, seed=3) == []


def test_space_filling_never_repeats_in_a_space_of_few_points() -> None:
    choices = {"a": Categorical(type="categorical", choices=(1, 2)), "b": IntegerRange(type="integer", low=0, high=2)}
    design = Space(choices).space_filling(6, seed=0)
    assert len({config_id(config) for config in design}) == 6
    assert len(Space(choices).space_filling(9, seed=0)) == 6


def test_encoding_maps_bounds_to_the_unit_interval(space: Space) -> None:
    base: Config = {"clip_range": 0.05, "rollouts": 12, "lr_scheduler": "cosine", "mixed": "one"}
    encoded = space.encode([{**base, "learning_rate": 1e-6}, {**base, "learning_rate": 1e-4}])
    assert encoded.shape == (2, 8)
    assert encoded[:, 0] == pytest.approx([0.0, 0.5])
    assert encoded[0, 1:].tolist() == [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_encoding_tells_true_from_one(space: Space) -> None:
    base = space.sample(1, np.random.default_rng(0))[0]
    true, one = space.encode([{**base, "mixed": True}, {**base, "mixed": 1}])
    assert true.tolist() != one.tolist()


def test_a_recipe_outside_the_ranges_is_encoded_at_the_nearest_bound(space: Space) -> None:
    outside: Config = {"learning_rate": 1.0, "clip_range": 0.0, "rollouts": 40, "lr_scheduler": "linear", "mixed": 7}
    assert not space.contains(outside)
    assert space.encode([outside])[0].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_encoding_needs_no_configuration(space: Space) -> None:
    assert space.encode([]).shape == (0, 8)
    assert Space({}).encode([{"fixed": 1}]).shape == (1, 0)


def test_canonical_casts_to_the_types_of_the_dimensions(space: Space) -> None:
    raw: Config = {
        "learning_rate": np.float32(1e-3),
        "clip_range": 1,
        "rollouts": np.float64(5.0),
        "extra": np.int64(3),
    }
    canonical = space.canonical(raw)
    assert canonical == {"learning_rate": plain32, "clip_range": 1.0, "rollouts": 5, "extra": 3}
    assert all_plain(canonical)
    assert isinstance(canonical["clip_range"], float)
    assert isinstance(canonical["rollouts"], int)


plain32 = float(f"{np.float32(1e-3):.12g}")


def test_canonical_reads_a_number_that_yaml_took_for_text(space: Space) -> None:
    assert space.canonical({"learning_rate": "1e-6"}) == {"learning_rate": 1e-6}
    with pytest.raises(StudyError, match="'fast' is no number"):
        space.canonical({"learning_rate": "fast"})


def test_rounding_never_leaves_the_range() -> None:
    low, high = 0.1234567890123451, 0.7654321098765449
    space = Space({"x": RealRange(low=low, high=high)})
    for bound in (low, high):
        assert space.contains(space.canonical({"x": bound}))


@pytest.mark.parametrize("missing", [{}, {"learning_rate": 1e-3}])
def test_an_incomplete_configuration_is_not_contained(space: Space, missing: Config) -> None:
    assert not space.contains(missing)


def test_neighbours_stay_inside_and_near(space: Space) -> None:
    rng = np.random.default_rng(0)
    centre: Config = {**space.sample(1, rng)[0], "learning_rate": 1e-2, "extra": "kept"}
    near = space.neighbours(centre, rng, [0.05] * 200)
    assert all(space.contains(config) and all_plain(config) and config["extra"] == "kept" for config in near)
    distance = np.abs(space.encode(near) - space.encode([centre]))
    assert 0.02 < np.mean(distance[:, 0]) < 0.06
    assert np.mean([config["mixed"] != centre["mixed"] for config in near]) < 0.1
    assert len({config["learning_rate"] for config in near}) > 190


@pytest.fixture(scope="module")
def conditional() -> Space:
    """``depth`` lives under a choice, ``shape`` under a depth; ``rate`` under a setting that holds, ``off`` never."""
    return Space(
        {
            "kind": Categorical(type="categorical", choices=("plain", "deep", "wide")),
            "depth": IntegerRange(type="integer", low=1, high=4, when={"kind": ("deep", "wide")}),
            "shape": Categorical(type="categorical", choices=("a", "b", "c"), when={"depth": (1, 2)}),
            "rate": RealRange(low=0.0, high=1.0, when={"mode": ("on",)}),
            "off": RealRange(low=0.0, high=1.0, when={"mode": ("off",)}),
        },
        fixed={"mode": "on", "depth": 2, "batch": 8},
    )


PLAIN: Config = {"kind": "plain", "rate": 0.25}


class TestConditions:
    def test_samples_hold_active_dimensions_only(self, conditional: Space) -> None:
        drawn = conditional.sample(300, np.random.default_rng(0))
        assert all(set(config) == set(conditional.active(config)) for config in drawn)
        assert {tuple(sorted(config)) for config in drawn} == {
            ("kind", "rate"),
            ("depth", "kind", "rate"),
            ("depth", "kind", "rate", "shape"),
        }
        assert all(conditional.contains(config) and conditional.canonical(config) == config for config in drawn)

    def test_an_inactive_value_makes_no_other_configuration(self, conditional: Space) -> None:
        stale: Config = {**PLAIN, "depth": 3, "shape": "b", "off": 0.5, "extra": 1}
        assert conditional.canonical(stale) == {**PLAIN, "extra": 1}
        assert conditional.encode([stale]).tolist() == conditional.encode([PLAIN]).tolist()
        assert conditional.contains(stale)

    def test_inactive_columns_are_constant(self, conditional: Space) -> None:
        deep: Config = {"kind": "deep", "depth": 4, "rate": 1.0}
        rows = conditional.encode([PLAIN, deep, {**deep, "depth": 1, "shape": "b"}])
        kind, depth, shape = slice(0, 3), 3, slice(4, 7)
        assert rows[:, kind].tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
        assert rows[:, depth].tolist() == [0.5, 1.0, 0.0]
        assert rows[:, shape].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
        assert rows[:, -2:].tolist() == [[0.25, 0.5], [1.0, 0.5], [1.0, 0.5]]

    def test_an_active_dimension_must_have_a_value(self, conditional: Space) -> None:
        assert conditional.contains(PLAIN)
        assert not conditional.contains({"kind": "plain"})
        assert not conditional.contains({"kind": "deep", "rate": 0.5})
        assert not conditional.contains({"kind": "deep", "depth": 1, "rate": 0.5})

    @settings(deadline=None, max_examples=15)
    @given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.01, 1.0))
    def test_a_step_ends_in_the_space(self, conditional: Space, seed: int, scale: float) -> None:
        rng = np.random.default_rng(seed)
        config: Config = {**conditional.sample(1, rng)[0], "extra": 1}
        for _ in range(10):
            [config] = conditional.neighbours(config, rng, [scale])
            assert set(config) == {*conditional.active(config), "extra"}
            assert conditional.contains(config)

    def test_a_step_into_a_branch_draws_what_it_needs(self, conditional: Space) -> None:
        rng = np.random.default_rng(0)
        moved = conditional.neighbours(PLAIN, rng, [1.0] * 100)
        assert {config.get("depth") for config in moved} == {None, 1, 2, 3, 4}
        assert {config["kind"] for config in moved if "depth" not in config} == {"plain"}

    def test_the_design_fills_the_whole_space(self, conditional: Space) -> None:
        design = conditional.space_filling(12, seed=1)
        assert len({config_id(config) for config in design}) == 12
        assert all(conditional.contains(config) for config in design)
        assert {config["kind"] for config in design} == {"plain", "deep", "wide"}

    def test_the_size_counts_distinct_configurations(self, conditional: Space) -> None:
        assert conditional.size == math.inf
        whole = Space({n: d for n, d in conditional.dimensions.items() if n not in ("rate", "off")})
        assert whole.size == 1 + 2 * (2 * 3 + 2)

    def test_defaults_are_the_settings_of_its_dimensions(self, conditional: Space) -> None:
        assert conditional.defaults == {"depth": 2}

    def test_a_space_without_conditions_draws_as_ever(self, space: Space) -> None:
        drawn = space.sample(2, np.random.default_rng(0))
        never = Categorical(type="categorical", choices=(1, 2), when={"lr_scheduler": ("cosine",)})
        more = Space({**space.dimensions, "more": never}).sample(2, np.random.default_rng(0))
        assert [{n: v for n, v in config.items() if n != "more"} for config in more] == drawn


def constrained(*constraints: str) -> Space:
    dimensions = {
        "rollouts": IntegerRange(type="integer", low=2, high=16),
        "clip_range": RealRange(low=0.1, high=0.5),
        "updates": Categorical(type="categorical", choices=(1, 2, 4), when={"rollouts": (2, 3, 4, 5, 6, 7, 8)}),
    }
    return Space(
        dimensions, constraints=constraints, fixed={"prompts_per_step": 16, "updates": 2, "scheduler": "cosine"}
    )


@pytest.fixture(scope="module")
def bounded() -> Space:
    return constrained(
        "rollouts * prompts_per_step <= 128", "clip_range < 0.3 or rollouts < 4", "updates * clip_range < 1"
    )


class TestConstraints:
    def met(self, config: Config) -> bool:
        rollouts, clip, updates = (float(config.get(name, 2)) for name in ("rollouts", "clip_range", "updates"))
        return rollouts * 16 <= 128 and (clip < 0.3 or rollouts < 4) and updates * clip < 1

    def test_samples_meet_them_and_are_many(self, bounded: Space) -> None:
        drawn = bounded.sample(400, np.random.default_rng(0))
        assert len(drawn) == 400
        assert all(map(self.met, drawn))
        assert {config["rollouts"] for config in drawn} == set(range(2, 9))
        assert max(config["clip_range"] for config in drawn) > 0.4
        assert drawn == bounded.sample(400, np.random.default_rng(0))

    def test_the_design_is_filled_up(self, bounded: Space) -> None:
        design = bounded.space_filling(20, seed=0)
        assert len({config_id(config) for config in design}) == 20
        assert all(map(self.met, design))

    def test_a_step_that_breaks_one_is_taken_again(self, bounded: Space) -> None:
        rng = np.random.default_rng(0)
        edge: Config = {"rollouts": 8, "clip_range": 0.299, "updates": 1}
        moved = bounded.neighbours(edge, rng, [0.1] * 80)
        assert all(map(self.met, moved))
        assert len({config_id(config) for config in moved}) > 75

    def test_where_no_step_is_left_the_configuration_stays(self) -> None:
        space = constrained("clip_range == 0.25")
        lone: Config = {"rollouts": 9, "clip_range": 0.25}
        assert space.neighbours(lone, np.random.default_rng(0), [0.1]) == [lone]

    def test_containment_knows_them(self, bounded: Space) -> None:
        assert bounded.contains({"rollouts": 8, "clip_range": 0.2, "updates": 4})
        assert not bounded.contains({"rollouts": 9, "clip_range": 0.2})
        assert not bounded.contains({"rollouts": 5, "clip_range": 0.4, "updates": 1})

    def test_an_inactive_dimension_counts_with_its_setting(self) -> None:
        assert not constrained("updates < 2").contains({"rollouts": 9, "clip_range": 0.2})
        assert constrained("updates == 2").contains({"rollouts": 9, "clip_range": 0.2})

    def test_an_impossible_one_ends_the_draw(self) -> None:
        with pytest.raises(StudyError, match=r"search\.constraints: none of 10,\d{3} random configurations meets"):
            constrained("rollouts > 16").sample(30, np.random.default_rng(0))

    def test_a_rare_one_is_found(self) -> None:
        drawn = constrained("clip_range < 0.101", "rollouts == 3").sample(3, np.random.default_rng(0))
        assert [config["rollouts"] for config in drawn] == [3, 3, 3]

    @pytest.mark.parametrize("name", ["rolouts", "scheduler"])
    def test_a_name_that_is_no_number_is_refused(self, name: str) -> None:
        known = "prompts_per_step, updates, rollouts, clip_range"
        with pytest.raises(StudyError, match=f"no number is called {name}; known: {known}"):
            constrained(f"{name} < 3")
