"""How latency is spread over requests: the share of them that took at most so long.

latency_cdf(result)     latency_cdf([first, second], "ttft_s")     latency_cdf(result, by="tier")
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from servegym.experiments.plot_axes import given_or_new, label, legend_beside, say
from servegym.experiments.plot_labels import Measure, find_measure, with_unit
from servegym.experiments.run_text import Run, as_list, common_setting, run_names
from servegym.experiments.statistics import defined
from servegym.traces import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 5_000  # of a curve; all are true points of it
GUIDES = (0.5, 0.9, 0.99)
LONG_TAIL = 10.0  # largest over median


def latency_cdf(
    results: Run | Sequence[Run],
    metric: str = "e2e_s",
    by: Literal["tier"] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the share of requests (y) that took at most so long (x); one curve a result, or a tier.

    metric: ttft_s, tpot_s, e2e_s or queue_s of requests for which it is defined; the legend counts
    them among those offered. ValueError for an unknown metric or grouping.
    """
    if by not in (None, "tier"):
        raise ValueError(f"by = {by!r}; must be None or 'tier'")
    measure, runs = find_measure(metric), as_list(results)
    ax = given_or_new(ax)
    drawn = [np.empty(0)]
    for name, values, style in groups(runs, measure, by):
        drawn.append(measure.scale * values)
        draw_cdf(ax, drawn[-1], name, style)
    first = measure.label[0].upper() + measure.label[1:]
    title = f"{first}: share of requests that took at most x"
    label(ax, title, common_setting(runs), with_unit(measure.label, measure.unit), "requests [%]")
    every = np.concatenate(drawn)
    if not len(every):
        say(ax, f"no request is {measure.population}: nothing to show")
        return ax
    choose_scale(ax, every)
    ax.set_ylim(0.0, 1.02)
    ticks = (0.0, 0.25, *GUIDES)
    ax.set_yticks(ticks, [f"{100 * tick:g}" for tick in ticks])
    legend_beside(ax, f"{measure.population}, of offered")
    return ax


def groups(
    runs: Sequence[Run], measure: Measure, by: str | None
) -> Iterator[tuple[str, NDArray[np.float64], dict[str, Any]]]:
    """Yield a label with counts, the defined values and a style, of every result or tier of it.

    The colour is the result's; by tier it is the tier's, and the line style the result's.
    """
    for k, (run, name) in enumerate(zip(runs, run_names(runs), strict=True)):
        values = run.requests[measure.key].to_numpy(dtype=np.float64)
        tiers = run.requests["tier"].to_numpy()
        if by is None:
            style = {"color": palette.colour_of(k), "linestyle": palette.line_style_of(k)}
            yield counted(name, values), defined(values), style
            continue
        line = palette.LINE_STYLES[k % len(palette.LINE_STYLES)]
        prefix = f"{name}, " if len(runs) > 1 else ""
        for tier in np.unique(tiers).tolist():
            own = values[tiers == tier]
            style = {"color": palette.colour_of(tier), "linestyle": line}
            yield counted(f"{prefix}tier {tier}", own), defined(own), style


def counted(name: str, values: NDArray[np.float64]) -> str:
    """Return the name and how many of the values are defined."""
    return f"{name}: {len(defined(values)):,} of {len(values):,}"


def choose_scale(ax: "Axes", values: NDArray[np.float64]) -> None:
    """Start the x axis at 0, or make it logarithmic if the tail would squeeze the rest."""
    middle, largest = float(np.median(values)), float(values.max())
    if not largest > LONG_TAIL * middle > 0.0:
        ax.set_xlim(left=0.0)
        return
    from matplotlib.ticker import LogLocator, NullFormatter

    least = max(float(values[values > 0.0].min()), middle / LONG_TAIL**2)
    ax.set_xscale("log")
    ax.set_xlim(least, 1.1 * largest)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if largest < 1000 * least else (1,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(f"{ax.get_xlabel()}, logarithmic scale")


def draw_cdf(ax: "Axes", values: NDArray[np.float64], name: str, style: Mapping[str, Any]) -> None:
    """Draw the steps of one empirical distribution; without values, only its place in the legend."""
    if not len(values):
        ax.plot([], [], label=name, **style)
        return
    n = len(values)
    ranks = np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).astype(int))
    times, shares = np.sort(values)[ranks], (ranks + 1) / n
    x, y = np.append(times[0], times), np.append(0.0, shares)
    ax.plot(x, y, drawstyle="steps-post", linewidth=1.6, label=name, **style)
