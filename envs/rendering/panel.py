"""What the panels of a frame have in common: sizes of text, boxes, and axes that grow in steps."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

TEXT, SMALL = 9, 8  # points
NAME_WIDTH = 12  # signs


class Panel:
    """One part of a frame: axes that stay, and `moving` artists that are drawn anew on every frame."""

    def __init__(self, axes: Axes) -> None:
        axes.tick_params(labelsize=SMALL)
        axes.spines[["top", "right"]].set_visible(False)
        self.axes = axes
        self.moving: list[Artist] = []

    def moves(self, artist: Any) -> Any:
        """Leave an artist out of what stays; return it."""
        artist.set_animated(True)
        self.moving.append(artist)
        return artist

    def boxes(self, n: int, **style: Any) -> PolyCollection:
        """Return n boxes that move, without extent yet."""
        found = PolyCollection(list(np.zeros((n, 4, 2))), **style)
        self.axes.add_collection(found)
        return self.moves(found)


def corners(low_x: Any, high_x: Any, low_y: Any, high_y: Any) -> Any:
    """Return the corners of boxes, float64[n, 4, 2], from their sides, float64[n] each."""
    around = ((low_x, low_y), (low_x, high_y), (high_x, high_y), (high_x, low_y))
    return np.stack([np.stack(corner, -1) for corner in around], axis=1)


def round_up(x: float, least: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is >= x, and at least `least`."""
    wanted = max(x, least)
    power = 10.0 ** np.floor(np.log10(wanted))
    return next(float(m * power) for m in (1, 2, 5, 10) if m * power >= wanted)


def ticks(end: float) -> list[float]:
    """Return the ticks of an axis from 0 to end."""
    return [0.0, end / 2, end]


def cut(name: str) -> str:
    """Return a name that has room beside its bar."""
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
