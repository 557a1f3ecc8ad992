"""The space in the terms of ConfigSpace, for the libraries that use it."""

from __future__ import annotations

from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, UniformFloatHyperparameter
from ConfigSpace import UniformIntegerHyperparameter as UniformInteger
from protocol import Dimension, Start


def configuration_space(start: Start) -> ConfigurationSpace:
    space = ConfigurationSpace(seed=start.seed)
    space.add([_hyperparameter(name, dimension) for name, dimension in start.space.items()])
    return space


def _hyperparameter(
    name: str, dimension: Dimension
) -> CategoricalHyperparameter | UniformInteger | UniformFloatHyperparameter:
    if dimension.choices:
        return CategoricalHyperparameter(name, dimension.keys)
    if dimension.type == "integer":
        return UniformInteger(name, int(dimension.low), int(dimension.high), log=dimension.log)
    return UniformFloatHyperparameter(name, dimension.low, dimension.high, log=dimension.log)
