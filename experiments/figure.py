"""The picture of a comparison: per metric, means per system above, paired differences below.

The upper panel shows means over seeds with intervals, which overlap because traces differ; the one
below shows the differences to the reference within each seed, which the verdicts rest on. The marker
repeats what the colour says.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from servegym.experiments.metrics import METRICS, Line
from servegym.experiments.statistics import Interval
from servegym.traces.palette import BLUE, GREY, LIGHT_GREY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "better": (BLUE, "o"),
    "worse": (VERMILION, "s"),
    "no difference": (GREY, "D"),
}
BY_KEY = {metric.key: metric for metric in METRICS}
SHOWN = (
    [BY_KEY[key] for key in ("e2e_mean_s", "ttft_mean_s", "tpot_mean_s")],
    [BY_KEY[key] for key in ("e2e_p99_s", "ttft_p99_s", "slo_attainment")],
)
UNJUDGED = (GREY, "x")  # one seed: no interval, no verdict
PANEL_WIDTH, ROW_HEIGHT, LINE_HEIGHT = 3.6, 1.0, 0.32  # inches
WRAP_AT, TITLE_HEIGHT = 135, 0.17  # characters and inches of a line of the title


def draw(lines: Sequence[Line], title: str) -> np.ndarray:
    """Return the axes (4, 3) of a new figure: the metrics SHOWN, differences below the means.

    One system alone has no differences: then the axes are (2, 3).
    """
    n_systems = len({line.system for line in lines})
    rows_each = 2 if n_systems > 1 else 1
    heading = wrap(title, WRAP_AT)
    figure, axes = new_figure(rows_each * len(SHOWN), n_systems, len(heading))
    figure.suptitle("\n".join(heading), fontsize=10, x=0.01, ha="left")
    for block, metrics in enumerate(SHOWN):
        for k, metric in enumerate(metrics):
            own = [line for line in lines if line.metric == metric]
            means = axes[rows_each * block, k]
            means.set_title(f"{metric.label} ({metric.better} is better)", fontsize=10)
            draw_means(means, own)
            if rows_each == 2:
                draw_differences(axes[2 * block + 1, k], own)
    if rows_each == 2 and any(line.mean.low is not None for line in lines):
        add_legend(figure)
    return axes


def new_figure(n_rows: int, n_systems: int, title_lines: int) -> tuple["Figure", np.ndarray]:
    """Return a figure without a window (Agg), high enough for its title and systems a panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n_columns = len(SHOWN[0])
    height = 0.5 + TITLE_HEIGHT * title_lines + n_rows * (ROW_HEIGHT + LINE_HEIGHT * n_systems)
    figure = Figure(figsize=(PANEL_WIDTH * n_columns + 1.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, sharey="row")


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
    heading = Line2D([], [], linestyle="none", label="bars: 95 % intervals; against the reference:")
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
