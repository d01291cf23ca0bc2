"""The picture of a comparison: latencies per system above, paired differences below.

The upper row shows means over seeds with intervals, which overlap because traces differ; the lower
row shows the differences to the reference within each seed, which the verdicts rest on. The marker
repeats what the colour says.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from servegym.experiments.metrics import LATENCIES, Line
from servegym.experiments.palette import BLUE, GREY, LIGHT_GREY, VERMILION
from servegym.experiments.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "better": (BLUE, "o"),
    "worse": (VERMILION, "s"),
    "no difference": (GREY, "D"),
}
UNJUDGED = (GREY, "x")  # one seed: no interval, no verdict
PANEL_WIDTH, ROW_HEIGHT, LINE_HEIGHT = 3.0, 1.0, 0.32  # inches


def draw(lines: Sequence[Line], title: str) -> np.ndarray:
    """Return the axes (2, 4) of a new figure: means above, differences to the reference below.

    One system alone has no differences: then the axes are (1, 4).
    """
    by_metric = {m: [line for line in lines if line.metric == m] for m in LATENCIES}
    n_systems = len(by_metric[LATENCIES[0]])
    n_rows = 2 if n_systems > 1 else 1
    figure, axes = new_figure(n_rows, n_systems)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    for k, (metric, shown) in enumerate(by_metric.items()):
        axes[0, k].set_title(metric.label, fontsize=10)
        draw_means(axes[0, k], shown)
        if n_rows == 2:
            draw_differences(axes[1, k], shown)
    if n_rows == 2 and any(line.mean.low is not None for line in lines):
        add_legend(figure)
    return axes


def new_figure(n_rows: int, n_systems: int) -> tuple["Figure", np.ndarray]:
    """Return a figure without a window (Agg), high enough for that many systems a panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = 0.6 + n_rows * (ROW_HEIGHT + LINE_HEIGHT * n_systems)
    figure = Figure(figsize=(PANEL_WIDTH * len(LATENCIES) + 1.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, len(LATENCIES), squeeze=False, sharey="row")


def draw_means(axes: "Axes", lines: Sequence[Line]) -> None:
    """Draw the mean over seeds and its interval for every system, first on top."""
    for y, line in enumerate(lines):
        draw_interval(axes, y, line.mean, "black", "o")
    n = max(line.mean.n for line in lines)
    label = f"mean over {n} seeds" if n > 1 else "one run"
    finish(axes, [line.system for line in lines], f"{label} [{lines[0].metric.unit}]")
    ends = (end for line in lines for end in (line.mean.mean, line.mean.high) if end is not None)
    axes.set_xlim(0.0, 1.08 * max(ends, default=1.0) or 1.0)


def draw_differences(axes: "Axes", lines: Sequence[Line]) -> None:
    """Draw the mean difference to the reference and its interval, coloured by verdict."""
    axes.axvline(0.0, color="black", linewidth=0.8)
    others = [line for line in lines if line.difference is not None]
    for y, line in enumerate(others):
        if line.difference is not None:
            draw_interval(axes, y, line.difference, *LOOKS.get(line.verdict or "", UNJUDGED))
    reference = next(line.system for line in lines if line.difference is None)
    label = f"minus {reference}, same seed [{lines[0].metric.unit}]"
    finish(axes, [line.system for line in others], label)


def add_legend(figure: "Figure") -> None:
    """Explain colours and markers below the panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, linewidth=2, label=label)
        for label, (colour, marker) in LOOKS.items()
    ]
    heading = Line2D([], [], linestyle="none", label="bars: 95 % intervals; left of 0 is faster:")
    figure.legend(
        handles=[heading, *handles],
        loc="outside lower left",
        ncols=len(handles) + 1,
        fontsize=9,
        frameon=False,
    )


def draw_interval(axes: "Axes", y: int, shown: Interval, colour: str, marker: str) -> None:
    """Draw one marker, and its bar where there is an interval."""
    if shown.mean is None:
        return
    if shown.low is not None and shown.high is not None:
        axes.hlines(y, shown.low, shown.high, color=colour, linewidth=2)
    axes.plot([shown.mean], [y], marker, color=colour, markersize=6)


def finish(axes: "Axes", systems: list[str], label: str) -> None:
    """Label one panel."""
    axes.set_yticks(range(len(systems)), systems)
    axes.set_ylim(len(systems) - 0.5, -0.5)
    axes.set_xlabel(label, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(axis="x", color=LIGHT_GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
