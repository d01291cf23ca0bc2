"""How a metric grows with load: its mean over seeds and their interval, a curve a system.

latency_against_load([comparison, ...])     latency_against_load(table, "ttft_p99_s")
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from servegym.experiments.comparison import Comparison
from servegym.experiments.metrics import Metric, metric_interval
from servegym.experiments.plot_axes import given_or_new, label, legend_beside, say
from servegym.experiments.plot_labels import find_metric, with_unit
from servegym.experiments.statistics import LEVEL, Interval
from servegym.traces import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def latency_against_load(
    runs: Comparison | Sequence[Comparison] | pd.DataFrame,
    metric: str = "e2e_mean_s",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a metric (y) of every system at several loads (x): mean over seeds, interval shaded.

    runs: comparisons at several loads, or a table with the columns system, load and the metric, one
    row a run. ValueError if the load of a run or the metric is unknown.
    """
    table = with_load(runs)
    found = find_metric(metric, table.columns)
    ax = given_or_new(ax)
    systems = list(dict.fromkeys(table["system"].tolist()))
    n_drawn = 0
    for k, system in enumerate(systems):
        n_drawn += draw_curve(ax, points_of(table, system, found), system, k)
    label(
        ax,
        f"{found.label} against load",
        over_seeds(table),
        "load [mean arrival rate / saturation rate]",
        with_unit(found.label, found.unit),
    )
    if not n_drawn:
        say(ax, f"{found.label} is undefined in every run: nothing to show")
        return ax
    ax.set_ylim(bottom=0.0)
    mark_saturation(ax)
    legend_beside(ax, "system")
    return ax


def points_of(table: pd.DataFrame, system: str, metric: Metric) -> list[tuple[float, Interval]]:
    """Return a system's loads, rising, with mean and interval there, where the metric is defined."""
    is_own = (table["system"] == system).to_numpy()
    loads = table["load"].to_numpy(dtype=np.float64)[is_own]
    values = metric.scale * table[metric.key].to_numpy(dtype=np.float64)[is_own]
    at_load = {load: values[loads == load] for load in np.unique(loads).tolist()}
    points = [(load, metric_interval(metric, own)) for load, own in at_load.items()]
    return [(load, interval) for load, interval in points if interval.mean is not None]


def over_seeds(table: pd.DataFrame) -> str:
    """Say what a point of the curves is the mean of."""
    n = Counter(zip(table["system"], table["load"], strict=True)).values()
    low, high = min(n, default=0), max(n, default=0)
    runs = f"{low} runs" if low == high else f"{low} to {high} runs"
    return f"mean over {runs}, {100 * LEVEL:g} % interval shaded" if high > 1 else "one run each"


def with_load(runs: Comparison | Sequence[Comparison] | pd.DataFrame) -> pd.DataFrame:
    """Return the runs of all comparisons with a column load; ValueError if it is unknown."""
    if isinstance(runs, pd.DataFrame):
        if missing := [name for name in ("system", "load") if name not in runs.columns]:
            raise ValueError(f"runs: column {missing[0]!r} is missing")
        return runs
    comparisons = [runs] if isinstance(runs, Comparison) else list(runs)
    if not comparisons:
        raise ValueError("runs = []; must hold at least one comparison")
    for comparison in comparisons:
        if comparison.load is None:
            raise ValueError(
                f"{comparison.workload}: all requests arrive at once, so it has no load"
            )
    table = pd.concat([c.runs.assign(load=round(c.load or 0.0, 9)) for c in comparisons])
    keys = list(zip(table["system"], table["load"], table["seed"], strict=True))
    for (system, load, seed), count in Counter(keys).items():
        if count > 1:
            raise ValueError(f"runs: {system} at load {load} has seed {seed} {count} times")
    return table


def draw_curve(ax: "Axes", points: list[tuple[float, Interval]], name: str, k: int) -> int:
    """Draw one system's means and the band between its bounds; return how many points it has."""
    if not points:
        return 0
    colour = palette.colour_of(k)
    loads = [load for load, _ in points]
    means = np.array([interval.mean for _, interval in points], np.float64)
    style = palette.line_style_of(k)
    ax.plot(loads, means, style, color=colour, marker=palette.marker_of(k), label=name)
    bounds = [(p, i.low, i.high) for p, i in points if i.low is not None and i.high is not None]
    if bounds:
        x, low, high = zip(*bounds, strict=True)
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    return len(points)


def mark_saturation(ax: "Axes") -> None:
    """Draw a line at load 1.0 if the picture reaches that far."""
    low, high = ax.get_xlim()
    if low <= 1.0 <= high:
        ax.axvline(1.0, color=palette.GREY, linewidth=1.0, linestyle=":", label="saturation")
