"""Requests in the system at each frame so far, and those of them at the gateway, as lines over time."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from servegym.envs.rendering.history import History
from servegym.envs.rendering.panel import TEXT, Panel, round_up, ticks
from servegym.envs.rendering.terminal import short
from servegym.traces import palette

TOTAL: dict[str, Any] = {"color": palette.BLUE, "linewidth": 1.5}
AT_GATEWAY: dict[str, Any] = {"color": palette.ORANGE, "linewidth": 1.2, "linestyle": "--"}

AT_END: dict[str, Any] = {"marker": "o", "markersize": 4, "markevery": [-1], "clip_on": False}


class HistoryPanel(Panel):
    """Two lines, on axes that fit the history given."""

    def __init__(self, axes: Axes, history: History) -> None:
        super().__init__(axes)
        time_end, total_end = self.ends_for(history)
        axes.set_xlim(0, time_end)
        axes.set_ylim(0, total_end)
        axes.set_yticks(ticks(total_end), [short(y) for y in ticks(total_end)])
        axes.set_xlabel("time (s)", fontsize=TEXT)
        axes.set_ylabel("requests", fontsize=TEXT)
        self._total = self.moves(axes.plot([], [], **TOTAL, **AT_END)[0])
        self._at_gateway = self.moves(axes.plot([], [], **AT_GATEWAY, **AT_END)[0])

    @staticmethod
    def ends_for(history: History) -> tuple[float, float]:
        """Return the ends of the axes of time and of requests that the history needs."""
        return round_up(history.last_s, 1.0), round_up(float(history.most), 10.0)

    def handles(self) -> list[Line2D]:
        """Return what the legend explains."""
        return [
            Line2D([], [], label="in the system", **TOTAL),
            Line2D([], [], label="of them at the gateway", **AT_GATEWAY),
        ]

    def fill(self, history: History) -> None:
        """Show the history."""
        time_s, total, at_gateway = history.arrays()
        self._total.set_data(time_s, total)
        self._at_gateway.set_data(time_s, at_gateway)
