"""The gateway's queues: a bar for the requests in each, and how long its head has waited."""

import numpy as np
from matplotlib.axes import Axes

from servegym.envs.rendering.panel import SMALL, TEXT, Panel, corners, cut, round_up, ticks
from servegym.envs.rendering.scene import Scene
from servegym.envs.rendering.terminal import short
from servegym.traces import palette

MOST_QUEUES = 8
LONGEST_BAR = 0.5  # of the axis: its number stands behind it
THICKNESS = 0.7


class QueuePanel(Panel):
    """Bars of the first MOST_QUEUES queues, on an axis that fits the scene given."""

    def __init__(self, axes: Axes, scene: Scene) -> None:
        super().__init__(axes)
        self._n = n = min(len(scene.queue_names), MOST_QUEUES)
        self._end = self.end_for(scene)
        n_all = len(scene.queue_names)
        title = "waiting at the gateway" if n == n_all else f"gateway: {n} of {n_all:,} queues"
        axes.set_title(title, fontsize=TEXT, loc="left", pad=4)
        axes.set_yticks(range(n), [cut(name) for name in scene.queue_names[:n]])
        axes.set_ylim(n - 0.4, -0.6)
        axes.set_xlim(0, self._end)
        axes.set_xticks(ticks(self._end), [short(x) for x in ticks(self._end)])
        axes.set_xlabel("requests (head's wait)", fontsize=TEXT)
        self._bars = self.boxes(n, facecolors=[palette.colour_of(q) for q in range(n)])
        style = {"fontsize": SMALL, "va": "center"}
        self._words = [self.moves(axes.text(0, q, "", **style)) for q in range(n)]

    @staticmethod
    def end_for(scene: Scene) -> float:
        """Return the end of the axis that the scene needs."""
        return round_up(float(scene.queued[:MOST_QUEUES].max()) / LONGEST_BAR, 10.0)

    def fill(self, scene: Scene) -> None:
        """Show a scene of as many queues."""
        n, y = self._n, np.arange(self._n, dtype=np.float64)
        lengths = scene.queued[:n].astype(np.float64)
        low, high = y - THICKNESS / 2, y + THICKNESS / 2
        self._bars.set_verts(corners(0.0 * y, lengths, low, high))
        waits_s = scene.head_waits_s[:n].tolist()
        for text, length, wait_s in zip(self._words, lengths.tolist(), waits_s, strict=True):
            text.set_text(f"{short(length)} ({_seconds(wait_s)})" if length else "0")
            text.set_x(length + 0.02 * self._end)


def _seconds(wait_s: float) -> str:
    return f"{wait_s:.2f} s" if wait_s < 10 else f"{wait_s:,.0f} s"
