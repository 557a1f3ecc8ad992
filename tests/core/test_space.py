import json

import numpy as np
import pytest

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
    near = [space.perturb(centre, rng, 0.05) for _ in range(200)]
    assert all(space.contains(config) and all_plain(config) and config["extra"] == "kept" for config in near)
    distance = np.abs(space.encode(near) - space.encode([centre]))
    assert 0.02 < np.mean(distance[:, 0]) < 0.06
    assert np.mean([config["mixed"] != centre["mixed"] for config in near]) < 0.1
    assert len({config["learning_rate"] for config in near}) > 190
