"""GuideTable: linear interpolation at uniform levels in [0, 1], in constant time a level.

The guide table method (Chen and Asau, AIIE Transactions 6, 1974): bucket k of [0, 1] keeps the
interval that its left edge lies in, so most levels find theirs without a search. A binary search a
level is most of what drawing lengths costs. The arithmetic is np.interp's: the numbers are the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

BUCKETS = 8192  # a power of two: level * BUCKETS is exact
LEAST_GAP = 1e-300  # between levels; across a smaller one a slope may be infinite


class GuideTable:
    """Values at increasing levels, and linear between them; constant outside, as np.interp is."""

    def __init__(self, levels: Sequence[float], values: Sequence[float]) -> None:
        """Take as many values as levels, which lie in [0, 1]."""
        x, y = np.array(levels, np.float64), np.array(values, np.float64)
        self.levels = np.concatenate([[0.0], x, [1.0]])
        self.values = np.concatenate([y[:1], y, y[-1:]])
        gaps = np.diff(self.levels)
        rises = np.divide(
            np.diff(self.values), gaps, out=np.zeros(len(gaps)), where=gaps > LEAST_GAP
        )
        self.slopes = np.append(rises, 0.0)
        self.next_levels = np.append(self.levels[1:], np.inf)
        edges = np.arange(BUCKETS + 1) / BUCKETS
        self.first = self.levels.searchsorted(edges, "right") - 1

    def interpolate(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the values at levels in [0, 1], of their shape: np.interp's, to the bit."""
        u = np.asarray(levels, np.float64)
        flat = u.ravel()
        found = self.first.take((flat * BUCKETS).astype(np.intp))
        later = np.flatnonzero(flat >= self.next_levels.take(found))
        found[later] = self.levels.searchsorted(flat[later], "right") - 1
        beyond = flat - self.levels.take(found)
        return (self.slopes.take(found) * beyond + self.values.take(found)).reshape(u.shape)
