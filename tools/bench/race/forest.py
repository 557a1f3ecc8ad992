"""Extremely randomised trees, kept in compact arrays: a prediction takes a fraction of a millisecond."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor

from race.problem import Array


class Forest:
    """Regression of ``[n, k]`` targets on ``[n, d]`` inputs, fitted by scikit-learn.

    Its own ``predict`` spends 0.1 ms on each tree; here one row goes down all trees at once.
    """

    def __init__(self, inputs: Array, targets: Array, leaf: int = 2) -> None:
        targets = targets[:, 0] if targets.shape[1] == 1 else targets
        fitted = ExtraTreesRegressor(100, min_samples_leaf=leaf, max_features=1.0, random_state=0).fit(inputs, targets)
        parts: list[Any] = [estimator.tree_ for estimator in fitted.estimators_]
        counts = np.array([part.node_count for part in parts])
        starts: NDArray[np.int64] = np.cumsum(counts) - counts
        self._roots = starts.astype(np.int32)
        self._depth = max(int(part.max_depth) for part in parts)
        offset = np.repeat(starts, counts)
        ends = np.concatenate([part.children_left < 0 for part in parts])
        here = np.arange(len(ends))
        left = np.concatenate([part.children_left for part in parts]) + offset
        right = np.concatenate([part.children_right for part in parts]) + offset
        # a leaf leads to itself, so that all rows take the same number of steps
        self._children = np.stack([np.where(ends, here, left), np.where(ends, here, right)], axis=1).astype(np.int32)
        self._feature = np.where(ends, 0, np.concatenate([part.feature for part in parts])).astype(np.int16)
        self._threshold = np.concatenate([part.threshold for part in parts])
        self._value: NDArray[np.float32] = np.concatenate([part.value[:, :, 0] for part in parts]).astype(np.float32)

    def predict(self, inputs: Array) -> Array:
        """``[n, k]``, the mean over the trees."""
        rows = np.asarray(inputs, dtype=np.float32)  # as scikit-learn compares them
        nodes = np.broadcast_to(self._roots, (len(rows), len(self._roots)))
        index = np.arange(len(rows))[:, None]
        for _ in range(self._depth):
            above = rows[index, self._feature[nodes]] > self._threshold[nodes]
            nodes = self._children[nodes, above.astype(np.int8)]
        return np.asarray(self._value[nodes].mean(axis=1, dtype=np.float64))


class CurveForest:
    """Curves ``[n, T]`` over inputs ``[n, d]``: a forest on their leading principal components."""

    def __init__(self, inputs: Array, curves: Array, components: int = 6) -> None:
        self._pca = PCA(components).fit(curves)
        self._forest = Forest(inputs, self._pca.transform(curves))

    def predict(self, inputs: Array) -> Array:
        """``[n, T]``."""
        return np.asarray(self._pca.inverse_transform(self._forest.predict(inputs)), dtype=np.float64)
