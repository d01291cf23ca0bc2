"""A comparison as text: one block a metric, one line a system, then the notes.

`mean [low, high]` is over seeds; the difference is to the reference within each seed, and its
verdict says whether the whole interval lies on one side of 0.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from servegym.experiments.metrics import Line
from servegym.experiments.statistics import Interval

if TYPE_CHECKING:
    from servegym.experiments.comparison import Comparison

STYLES = {"better": "green", "worse": "red"}


def print_comparison(comparison: "Comparison", console: Console) -> None:
    """Print the title, the table and the notes; the table is never cut to a narrow console."""
    table = rich_table(comparison.lines, comparison.reference)
    console.width = max(console.width, Console(width=10_000).measure(table).maximum)
    console.print(comparison.title, highlight=False, markup=False)
    console.print()
    console.print(table)
    for note in comparison.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def rich_table(lines: Sequence[Line], reference: str) -> Table:
    """Return the table that print_comparison prints."""
    bounds = " [95 % interval]" if any(line.mean.low is not None for line in lines) else ""
    headers = ["", "system", f"mean{bounds}"]
    if any(line.difference for line in lines):
        headers += [f"minus {reference}, same seeds{bounds}", "verdict"]
    out = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        out.add_column(escape(header), no_wrap=True)
    for k, line in enumerate(lines):
        is_first = k == 0 or line.metric != lines[k - 1].metric
        if is_first and k > 0:
            out.add_row()
        cells = row_of(line, is_first)[: len(headers)]
        out.add_row(*map(escape, cells), style=STYLES.get(line.verdict or ""))
    out.add_row()
    return out


def row_of(line: Line, is_first: bool) -> list[str]:
    """Return one row's cells; the metric's name stands on its first row only."""
    unit = f" [{line.metric.unit}]" if line.metric.unit else ""
    difference = "" if line.difference is None else with_interval(line.difference, sign="+")
    if line.difference_percent is not None and line.metric.unit != "%":
        difference += f" ({line.difference_percent:+.1f} %)"
    label = line.metric.label + unit if is_first else ""
    return [label, line.system, with_interval(line.mean), difference, line.verdict or "-"]


def with_interval(shown: Interval, sign: str = "") -> str:
    """Return "mean [low, high]", or what of it is known, all to the same place."""
    mean, low, high = shown.mean, shown.low, shown.high
    if mean is None:
        return "-"
    if low is None or high is None:
        return f"{mean:{sign},.{decimals(mean, 3)}f}"
    if low == high == 0.0:
        return "0 [0, 0]"
    places = decimals((high - low) / 2.0, 2)
    if not sign:  # a difference may be nothing but noise; a mean keeps three digits
        places = max(places, decimals(mean, 3))
    return f"{mean:{sign},.{places}f} [{low:{sign},.{places}f}, {high:{sign},.{places}f}]"


def decimals(amount: float, digits: int) -> int:
    """Return the decimals that show so many significant digits of an amount; 0 for 0."""
    if amount == 0.0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(amount))))
