"""A metric by tier, one bar a system: who pays for whom.

tier_bars(comparison)     tier_bars([result, ...])
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from servegym.experiments.comparison import Comparison
from servegym.experiments.grid import flatten
from servegym.experiments.metrics import Metric, metric_interval
from servegym.experiments.plot_axes import given_or_new, label, legend_beside, say
from servegym.experiments.plot_labels import find_metric, with_unit
from servegym.experiments.run_text import Run, as_list, common_setting, facts
from servegym.experiments.statistics import LEVEL, Interval
from servegym.traces import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP_WIDTH = 0.8  # of the distance between two tiers


def tier_bars(
    runs: Comparison | Run | Sequence[Run],
    metric: str = "ttft_p99_s",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a metric (y) of every tier (x), one bar a system: mean and interval over seeds.

    runs: a comparison, or results, of which those of the same system are its seeds. metric: a
    latency (`ttft_p99_s`, ...), slo_attainment or goodput_per_s. ValueError for any other.
    """
    is_comparison = isinstance(runs, Comparison)
    table = runs.runs if is_comparison else table_of(as_list(runs))
    columns = tier_columns(table, metric)
    found = find_metric(metric, table.columns)
    ax = given_or_new(ax)
    bars = {
        system: [
            metric_interval(found, values_of(table, system, column, found))
            for column in columns.values()
        ]
        for system in dict.fromkeys(table["system"].tolist())
    }
    n_seeds = max(Counter(table["system"]).values())
    over = f"mean over {n_seeds} seeds, bars: {100 * LEVEL:g} % intervals" if n_seeds > 1 else ""
    where = runs.title if is_comparison else common_setting(as_list(runs))
    title = f"{found.label} by tier" + (f" ({over})" if over else "")
    label(ax, title, where, "tier (0 is the most urgent)", with_unit(found.label, found.unit))
    if not any(bar.mean is not None for row in bars.values() for bar in row):
        say(ax, f"{found.label} is undefined in every tier: nothing to show")
        return ax
    draw_bars(ax, bars)
    ax.set_xticks(range(len(columns)), [str(tier) for tier in columns])
    ax.grid(visible=False, axis="x")
    legend_beside(ax, "system")
    return ax


def table_of(runs: Sequence[Run]) -> pd.DataFrame:
    """Return one row a result: system, seed and its summary, flat."""
    rows = [{**facts(run), **flatten(run.summary())} for run in runs]
    return pd.DataFrame(rows)


def tier_columns(table: pd.DataFrame, metric: str) -> dict[int, str]:
    """Return the metric's column of every tier; with one tier, all requests are tier 0."""
    columns = {}
    while (name := f"tier{len(columns)}_{metric}") in table.columns:
        columns[len(columns)] = name
    if not columns and metric in table.columns and "tier1_offered" in table.columns:
        raise ValueError(f"{metric} is not kept by tier; latencies, SLO attainment, goodput are")
    return columns or {0: metric}


def values_of(table: pd.DataFrame, system: str, column: str, metric: Metric) -> np.ndarray:
    """Return a column of one system's runs in the metric's unit, NaN where undefined."""
    is_own = (table["system"] == system).to_numpy()
    return metric.scale * table[column].to_numpy(dtype=np.float64)[is_own]


def draw_bars(ax: "Axes", bars: dict[str, list[Interval]]) -> None:
    """Draw one bar a system beside each other in every tier, and its interval."""
    width = GROUP_WIDTH / len(bars)
    for k, (system, row) in enumerate(bars.items()):
        x = np.arange(len(row)) + (k - (len(bars) - 1) / 2) * width
        heights = [np.nan if bar.mean is None else bar.mean for bar in row]
        ax.bar(x, heights, 0.9 * width, color=palette.colour_of(k), label=system)
        for at, bar in zip(x, row, strict=True):
            if bar.low is not None and bar.high is not None:
                for colour, linewidth in (("white", 3.0), ("black", 1.2)):
                    ax.vlines(at, bar.low, bar.high, color=colour, linewidth=linewidth)
            if bar.mean is None:
                ax.text(at, 0, "none", rotation=90, ha="center", va="bottom", fontsize=8)
