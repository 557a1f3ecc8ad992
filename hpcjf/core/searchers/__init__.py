"""Search methods, one file each, behind one name."""

from __future__ import annotations

from collections.abc import Callable

from hpcjf.core.searchers.asha import AshaSearcher
from hpcjf.core.searchers.base import ModelFidelity, Pending, Searcher, SearchProblem
from hpcjf.core.searchers.bohb import BohbSearcher
from hpcjf.core.searchers.grid import GridSearcher
from hpcjf.core.searchers.halving import HalvingSearcher, HyperbandSearcher
from hpcjf.core.searchers.jfhpo import JfhpoSearcher
from hpcjf.core.searchers.random import RandomSearcher
from hpcjf.core.searchers.recipe import RecipeSearcher
from hpcjf.core.searchers.tpe import TpeSearcher
from hpcjf.study import Method

__all__ = ["ModelFidelity", "Pending", "SearchProblem", "Searcher", "make_searcher"]

_METHODS: dict[Method, Callable[[SearchProblem], Searcher]] = {
    "jfhpo": JfhpoSearcher,
    "recipe": RecipeSearcher,
    "grid": GridSearcher,
    "random": RandomSearcher,
    "sha": HalvingSearcher,
    "hyperband": HyperbandSearcher,
    "asha": AshaSearcher,
    "bohb": BohbSearcher,
    "tpe": TpeSearcher,
}


def make_searcher(method: Method, problem: SearchProblem) -> Searcher:
    return _METHODS[method](problem)
