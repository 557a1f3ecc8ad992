"""Search methods, one file each, behind one name."""

from __future__ import annotations

from hpcjf.core.searchers.base import ModelFidelity, Pending, Searcher, SearchProblem
from hpcjf.core.searchers.jfhpo import JfhpoSearcher
from hpcjf.core.searchers.random import RandomSearcher
from hpcjf.core.searchers.recipe import RecipeSearcher
from hpcjf.study import Method

__all__ = ["ModelFidelity", "Pending", "SearchProblem", "Searcher", "make_searcher"]

_METHODS: dict[str, type[JfhpoSearcher] | type[RandomSearcher] | type[RecipeSearcher]] = {
    "jfhpo": JfhpoSearcher,
    "random": RandomSearcher,
    "recipe": RecipeSearcher,
}


def make_searcher(method: Method, problem: SearchProblem) -> Searcher:
    return _METHODS[method](problem)
