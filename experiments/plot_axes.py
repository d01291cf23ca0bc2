"""Axes that look alike: new or the caller's, titles that say what is shown, legends beside the data.

A new figure comes from pyplot, so that notebooks show it and `pyplot.show()` finds it. matplotlib is
imported when something is drawn, never before.
"""

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from servegym.traces.palette import GREY, LIGHT_GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 8.0, 4.0  # inches
WRAP_AT, MOST_LINES = 110, 5  # characters and lines of a subtitle


def new_axes(n_rows: int = 1, height: float = HEIGHT) -> np.ndarray:
    """Return the axes, one below the other, of a new figure; they share their x axis."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots(
        n_rows, 1, figsize=(WIDTH, height), layout="constrained", squeeze=False, sharex=True
    )
    return axes[:, 0]


def given_or_new(ax: "Axes | None") -> "Axes":
    """Return the caller's axes, or those of a new figure."""
    return new_axes()[0] if ax is None else ax


def label(ax: "Axes", title: str, subtitle: str, x: str, y: str) -> None:
    """Write a title (what is shown), a smaller line under it (of what), and both axes' names."""
    lines = wrap(subtitle, WRAP_AT, max_lines=MOST_LINES, placeholder=" …")
    ax.set_title(title, loc="left", fontsize=11, pad=8 + 11 * len(lines))
    if lines:
        ax.annotate(
            "\n".join(lines),
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
            color="#444444",
        )
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(color=LIGHT_GREY, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def legend_beside(ax: "Axes", title: str | None = None) -> None:
    """Put the legend right of the axes, where there is no data."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(
            handles,
            labels,
            title=title,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
            frameon=False,
            fontsize=9,
            title_fontsize=9,
            alignment="left",
        )


def say(ax: "Axes", text: str) -> None:
    """Write a remark into the middle of axes that have nothing to show."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)
