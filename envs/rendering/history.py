"""Requests in the system at each frame so far, thinned as it grows long."""

import numpy as np
from numpy.typing import NDArray

from servegym.envs.rendering.scene import Scene

MOST_POINTS = 2000  # more than a frame has columns


class History:
    """Points (time in s, requests in the system, of them at the gateway), in order of time."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int, int]] = []

    def add(self, scene: Scene) -> None:
        """Add a scene's point; forget those at or after its time (a new episode, a restored snapshot)."""
        while self._points and self._points[-1][0] >= scene.now_s:
            self._points.pop()
        at_gateway = int(scene.queued.sum())
        self._points.append((scene.now_s, scene.counts["unfinished"], at_gateway))
        if len(self._points) > MOST_POINTS:
            self._points = [*self._points[:-1:2], self._points[-1]]

    @property
    def last_s(self) -> float:
        """The time of the last point."""
        return self._points[-1][0]

    @property
    def most(self) -> int:
        """The most requests in the system at any point."""
        return max(total for _, total, _ in self._points)

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return times, requests in the system, and those at the gateway, float64[n] each."""
        time_s, total, at_gateway = np.array(self._points, np.float64).T
        return time_s, total, at_gateway
