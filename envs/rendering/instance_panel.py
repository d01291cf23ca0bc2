"""KV use of every instance: a bar for what is in use, on it what waiting requests want, both in % of its blocks.

Above stand the counts of requests, if there is room for them. An instance that takes no requests has its condition
written in its column, which is shaded.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from servegym.envs.rendering.panel import SMALL, TEXT, Panel, corners
from servegym.envs.rendering.scene import Scene
from servegym.envs.rendering.terminal import short
from servegym.traces import palette

MOST_INSTANCES = 64
MOST_NUMBERED = 16  # with their counts above them
MOST_TICKS = 24
TOP_SHARE = 200  # % at the upper end of the axis; more is cut off there
BAR_WIDTH = 0.8
WORD_AT = 150  # %: beside the line of all there is
NUMBER_ROWS = (1.16, 1.06)  # heights of the counts above the axes
PALE_ORANGE = "#f6d9a3"
BEHIND = {
    "active": "white",
    "absent": palette.LIGHT_GREY,
    "starting": palette.SKY,
    "draining": palette.PURPLE,
    "down": palette.VERMILION,
}


class InstancePanel(Panel):
    """Bars of the first MOST_INSTANCES instances."""

    def __init__(self, axes: Axes, scene: Scene) -> None:
        super().__init__(axes)
        self._n = n = min(len(scene.conditions), MOST_INSTANCES)
        axes.set_xlim(-0.6, n - 0.4)
        axes.set_ylim(0, TOP_SHARE)
        axes.set_xticks(range(0, n, 1 if n <= MOST_TICKS else 8))
        axes.set_yticks([0, 50, 100, 150, TOP_SHARE], ["0", "50", "100", "150", f"≥{TOP_SHARE}"])
        axes.set_ylabel("% of KV blocks", fontsize=TEXT)
        n_all = len(scene.conditions)
        if n_all > n:  # no counts stand there then
            axes.set_title(f"the first {n} of {n_all:,} instances", fontsize=TEXT, loc="left")
        axes.set_xlabel("instance", fontsize=TEXT, loc="left")
        axes.axhline(100, color="black", linewidth=1, linestyle="--")
        self._shades = self.boxes(n, alpha=0.25)
        self._used = self.boxes(n, facecolor=palette.BLUE)
        self._wanted = self.boxes(n, facecolor=PALE_ORANGE, edgecolor=palette.ORANGE, linewidth=0.6)
        self._words = [self._word(i) for i in range(n)]
        self._rows = [self._counts(row) for row in NUMBER_ROWS] if n <= MOST_NUMBERED else []
        if self._rows:
            for row, name in zip(NUMBER_ROWS, ("run", "wait"), strict=True):
                axes.text(-0.02, row, name, transform=axes.transAxes, ha="right", fontsize=SMALL)

    def handles(self) -> list[Patch | Line2D]:
        """Return what the legend explains."""
        return [
            Patch(facecolor=palette.BLUE, label="in use"),
            Patch(
                facecolor=PALE_ORANGE, edgecolor=palette.ORANGE, label="wanted by those that wait"
            ),
            Line2D([], [], color="black", linewidth=1, linestyle="--", label="all there is"),
        ]

    def fill(self, scene: Scene) -> None:
        """Show a scene of as many instances."""
        n, x = self._n, np.arange(self._n, dtype=np.float64)
        conditions = scene.conditions[:n]
        top = np.array([0.0 if each == "active" else TOP_SHARE for each in conditions])
        used = np.minimum(100.0 * scene.kv_shares[:n], TOP_SHARE)
        wanted = np.minimum(used + 100.0 * scene.wanted_shares[:n], TOP_SHARE)
        left, right = x - BAR_WIDTH / 2, x + BAR_WIDTH / 2
        self._shades.set_verts(corners(x - 0.5, x + 0.5, 0.0 * x, top))
        self._shades.set_facecolor([to_rgba(BEHIND[each]) for each in conditions])
        self._used.set_verts(corners(left, right, 0.0 * x, used))
        self._wanted.set_verts(corners(left, right, used, wanted))
        for word, condition in zip(self._words, conditions, strict=True):
            word.set_text("" if condition == "active" else condition)
        for row, counts in zip(self._rows, (scene.running, scene.waiting), strict=False):
            for text, count in zip(row, counts.tolist(), strict=True):
                text.set_text(short(count))

    def _word(self, i: int):
        """Return a text for the condition of instance i, upwards in its column."""
        style = {"rotation": 90, "ha": "center", "va": "center", "fontsize": SMALL}
        return self.moves(self.axes.text(i, WORD_AT, "", **style))

    def _counts(self, row: float) -> list:
        """Return a text above every instance, at that height."""
        style = {"ha": "center", "fontsize": SMALL, "transform": self.axes.get_xaxis_transform()}
        return [self.moves(self.axes.text(i, row, "", **style)) for i in range(self._n)]
