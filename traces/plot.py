"""A trace as a picture: arrival rate over time above, prompt and output lengths below.

Lengths are histograms over a logarithmic axis, in whole-token bins, with the median and the 99th
percentile. Colours: Okabe and Ito's, told apart by the colour-blind.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from servegym.traces.palette import BLUE, GREY, LIGHT_GREY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from servegym.traces.trace import Trace

BIN_WIDTHS_S = (0.01, 0.1, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MOST_BINS = 250
LENGTH_BINS = 60
TIME_UNITS = ((172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "h"), (600.0, 60.0, "min"))


def plot(trace: "Trace", path: str | Path | None = None) -> "Figure":
    """Return the figure, saved to path when given; ValueError for a trace without requests."""
    if not len(trace):
        raise ValueError(f"{trace.name or 'trace'} has no requests: nothing to plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{trace.name or 'trace'}: {trace.rates()}", fontsize=10, x=0.01, ha="left")
    axes = figure.subplot_mosaic([["rate", "rate"], ["prompt", "output"]])
    axes["output"].sharey(axes["prompt"])  # before drawing, so that the scale fits both
    draw_rate(axes["rate"], trace)
    draw_lengths(axes["prompt"], trace.prompt_tokens, "prompt", BLUE)
    draw_lengths(axes["output"], trace.output_tokens, "output", VERMILION)
    axes["prompt"].set_ylabel("requests [%]")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def draw_rate(axes: "Axes", trace: "Trace") -> None:
    """Draw the mean rate in bins from the first arrival on, and the overall mean."""
    width_s = bin_width_s(trace.span_s)
    origin_s = float(trace.arrival_s[0])
    counts = np.bincount(((trace.arrival_s - origin_s) // width_s).astype(np.int64))
    unit_s, unit = time_unit(trace.span_s)
    edges = (origin_s + width_s * np.arange(len(counts) + 1)) / unit_s
    axes.stairs(counts / width_s, edges, color=GREY, fill=True)
    if (mean := trace.mean_rate_per_s) is not None:
        axes.axhline(mean, color="black", linestyle="--", linewidth=1.2, label=f"mean {mean:.4g}")
        put_legend_above(axes)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylabel(f"requests/s, bins of {width_s:g} s")
    axes.set_xlabel(f"arrival [{unit}]")
    axes.set_ylim(bottom=0.0)
    finish(axes)


def draw_lengths(axes: "Axes", tokens: NDArray[np.int32], name: str, colour: str) -> None:
    """Draw one histogram with its median and 99th percentile."""
    from matplotlib.ticker import LogFormatter

    edges = length_edges(int(tokens.min()), int(tokens.max()))
    counts = np.histogram(tokens, edges)[0]
    axes.stairs(100.0 * counts / len(tokens), edges, color=colour, fill=True, alpha=0.8)
    for percentile, style, label in ((50, "-", "median"), (99, ":", "P99")):
        at = float(np.percentile(tokens, percentile))
        axes.axvline(at, color="black", linestyle=style, linewidth=1.2, label=f"{label} {at:,.0f}")
    axes.set_xscale("log")
    axes.set_xlim(0.9 * (float(tokens.min()) - 0.5), 1.1 * edges[-1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(LogFormatter())
    axes.set_xlabel(f"{name} [tokens]")
    put_legend_above(axes)
    finish(axes)


def length_edges(least: int, most: int) -> NDArray[np.float64]:
    """Return edges half a token below whole lengths, evenly spaced in the logarithm where possible."""
    return np.unique(np.rint(np.geomspace(least, most + 1.0, LENGTH_BINS + 1))) - 0.5


def bin_width_s(span_s: float) -> float:
    """Return the least width (s) that gives at most MOST_BINS bins."""
    fitting = [width for width in BIN_WIDTHS_S if span_s / width < MOST_BINS]
    return float(fitting[0] if fitting else BIN_WIDTHS_S[-1])


def time_unit(span_s: float) -> tuple[float, str]:
    """Return the unit of the time axis, in s, and its name."""
    for least_s, unit_s, name in TIME_UNITS:
        if span_s >= least_s:
            return unit_s, name
    return 1.0, "s"


def put_legend_above(axes: "Axes") -> None:
    """Explain the lines where they cannot lie on data."""
    place = (1.0, 1.0)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=place,
        ncols=2,
        fontsize=9,
        frameon=False,
        borderaxespad=0.1,
    )


def finish(axes: "Axes") -> None:
    """Give a panel its grid and take away its frame."""
    axes.tick_params(labelsize=9)
    axes.grid(axis="y", color=LIGHT_GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
