"""A scene as a frame for a video: KV use by instance, queues at the gateway, and requests in the system over time.

What rarely changes (axes, ticks, names) is drawn once and kept as a picture; a frame restores it and draws bars,
line and numbers on top, which takes some milliseconds. An axis that must grow grows to the next 1, 2 or 5 times a
power of ten, and the picture is drawn anew. Left out: instances beyond the 64th and queues beyond the 8th are only
counted.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from numpy.typing import NDArray

from servegym.envs.rendering.history import History
from servegym.envs.rendering.scene import Scene, look
from servegym.envs.rendering.terminal import short
from servegym.simulator.simulation import Simulation
from servegym.traces import palette

DPI = 100
MOST_INSTANCES, MOST_QUEUES = 64, 8
MOST_NUMBERED = 16  # instances with their counts in figures above them
TOP_SHARE = 200  # % of an instance's KV at the upper end of the axis; more is cut off there
BAR_WIDTH = 0.8
NAME_WIDTH = 12  # signs of a queue's name
TEXT, SMALL = 9, 8  # points
NUMBER_ROWS = (1.16, 1.06)  # heights of the counts above the axes
LONGEST_BAR = 0.5  # of the axis of queues: its number stands behind it
BEHIND = {
    "absent": palette.LIGHT_GREY,
    "starting": palette.SKY,
    "draining": palette.PURPLE,
    "down": palette.VERMILION,
}


def rgb_array(
    simulation: Simulation,
    *,
    step: int | None = None,
    role: str = "",
    action: str = "",
    reward: float | None = None,
) -> NDArray[np.uint8]:
    """Return one frame, uint8[480, 800, 3]. For several, a Painter is a hundred times as fast and knows the past."""
    return Painter().frame(simulation, step=step, role=role, action=action, reward=reward)


class Painter:
    """Frames of one size. It remembers the requests in the system at each frame; time that goes back is forgotten."""

    def __init__(self, width: int = 800, height: int = 480) -> None:
        self.shape = (height, width, 3)
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        self._canvas = FigureCanvasAgg(self._figure)
        self._history = History()
        self._layout: tuple[object, ...] = ()  # what the picture behind was drawn for
        self._behind = None

    def frame(
        self,
        simulation: Simulation,
        *,
        step: int | None = None,
        role: str = "",
        action: str = "",
        reward: float | None = None,
    ) -> NDArray[np.uint8]:
        """Return the simulation's present, uint8[H, W, 3] (scene.Facts has the keywords)."""
        return self.draw(look(simulation, step=step, role=role, action=action, reward=reward))

    def draw(self, scene: Scene) -> NDArray[np.uint8]:
        """Return a scene as uint8[H, W, 3], a copy."""
        self._history.add(scene)
        shown = _Shown(scene)
        wanted = (len(scene.conditions), tuple(scene.queue_names), *self._limits(shown))
        if wanted != self._layout:
            self._lay_out(scene, shown)
            self._layout = wanted
        self._canvas.restore_region(self._behind)
        self._fill_instances(shown)
        self._fill_queues(shown)
        self._fill_texts(scene)
        self._fill_history()
        for artist in self._moving:
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _limits(self, shown: "_Shown") -> tuple[float, float, float]:
        """Return the upper ends of the axes of queues, of time and of requests in the system."""
        return (
            round_up(float(shown.queued.max()) / LONGEST_BAR, 10.0),
            round_up(self._history.last_s, 1.0),
            round_up(float(self._history.most), 10.0),
        )

    # What stays.

    def _lay_out(self, scene: Scene, shown: "_Shown") -> None:
        """Draw everything that does not move, and make the artists of what does."""
        self._figure.clear()
        self._moving: list = []
        queue_end, time_end, total_end = self._limits(shown)
        self._lay_out_texts(scene)
        self._lay_out_instances(self._figure.add_axes((0.085, 0.47, 0.53, 0.33)), scene, shown)
        self._lay_out_queues(self._figure.add_axes((0.765, 0.47, 0.21, 0.33)), scene, queue_end)
        self._lay_out_history(
            self._figure.add_axes((0.085, 0.105, 0.89, 0.21)), time_end, total_end
        )
        self._canvas.draw()
        self._behind = self._canvas.copy_from_bbox(self._figure.bbox)

    def _lay_out_texts(self, scene: Scene) -> None:
        self._heading = self._moved(self._figure.text(0.012, 0.955, "", fontsize=12))
        self._facts = self._moved(self._figure.text(0.21, 0.956, "", fontsize=TEXT))
        self._counts = self._moved(self._figure.text(0.012, 0.905, "", fontsize=TEXT))

    def _lay_out_instances(self, axes: Axes, scene: Scene, shown: "_Shown") -> None:
        n = len(shown.conditions)
        _plain(axes)
        axes.set_xlim(-0.6, n - 0.4)
        axes.set_ylim(0, TOP_SHARE)
        axes.set_yticks([0, 50, 100, 150, TOP_SHARE], ["0", "50", "100", "150", f"≥{TOP_SHARE}"])
        axes.set_ylabel("% of KV blocks", fontsize=TEXT)
        every = 1 if n <= 24 else 8
        axes.set_xticks(range(0, n, every))
        left_out = len(scene.conditions) - n
        more = f" (the first {n} of {n + left_out:,})" if left_out else ""
        axes.set_xlabel(f"instance{more}", fontsize=TEXT, loc="left")
        axes.axhline(100, color="black", linewidth=1, linestyle="--")
        corners = np.zeros((n, 4, 2))
        self._conditions = self._moved(axes.add_collection(PolyCollection(corners, alpha=0.25)))
        self._used = self._moved(
            axes.add_collection(PolyCollection(corners, facecolor=palette.BLUE))
        )
        self._wanted = self._moved(
            axes.add_collection(
                PolyCollection(
                    corners, facecolor="#f6d9a3", edgecolor=palette.ORANGE, linewidth=0.6
                )
            )
        )
        self._words = [self._moved(_word(axes, i)) for i in range(n)]
        self._numbers = []
        if n <= MOST_NUMBERED:
            self._numbers = [
                [self._moved(_above(axes, i, row)) for i in range(n)] for row in NUMBER_ROWS
            ]
            for row, name in zip(NUMBER_ROWS, ("runs", "waits"), strict=True):
                axes.text(-0.02, row, name, transform=axes.transAxes, ha="right", fontsize=SMALL)
        handles = [
            Patch(facecolor=palette.BLUE, label="in use"),
            Patch(facecolor="#f6d9a3", edgecolor=palette.ORANGE, label="wanted by those that wait"),
            Line2D([], [], color="black", linewidth=1, linestyle="--", label="all there is"),
        ]
        self._figure.legend(
            handles=handles, loc="center right", bbox_to_anchor=(0.63, 0.398), ncols=3,
            fontsize=SMALL, frameon=False, handlelength=1.4, columnspacing=1.0,
        )  # fmt: skip

    def _lay_out_queues(self, axes: Axes, scene: Scene, end: float) -> None:
        n = min(len(scene.queue_names), MOST_QUEUES)
        _plain(axes)
        axes.set_title("waiting at the gateway", fontsize=TEXT, loc="left", pad=4)
        names = [_cut(name) for name in scene.queue_names[:n]]
        axes.set_yticks(range(n), names)
        axes.set_ylim(n - 0.4, -0.6)
        axes.set_xlim(0, end)
        axes.set_xticks([0, end / 2, end], [short(x) for x in (0, end / 2, end)])
        left_out = len(scene.queue_names) - n
        more = f"; {left_out} more queues" if left_out else ""
        axes.set_xlabel(f"requests (head's wait){more}", fontsize=TEXT)
        self._queues = self._moved(
            axes.add_collection(
                PolyCollection(
                    np.zeros((n, 4, 2)), facecolors=[palette.colour_of(q) for q in range(n)]
                )
            )
        )
        self._queue_words = [
            self._moved(axes.text(0, q, "", fontsize=SMALL, va="center")) for q in range(n)
        ]

    def _lay_out_history(self, axes: Axes, time_end: float, total_end: float) -> None:
        _plain(axes)
        axes.set_xlim(0, time_end)
        axes.set_ylim(0, total_end)
        axes.set_yticks(
            [0, total_end / 2, total_end], [short(y) for y in (0, total_end / 2, total_end)]
        )
        axes.set_xlabel("time (s)", fontsize=TEXT)
        axes.set_ylabel("requests", fontsize=TEXT)
        self._total = self._moved(axes.plot([], [], color=palette.BLUE, linewidth=1.5)[0])
        style = {"color": palette.ORANGE, "linewidth": 1.2, "linestyle": "--"}
        self._at_gateway = self._moved(axes.plot([], [], **style)[0])
        handles = [
            Line2D([], [], color=palette.BLUE, linewidth=1.5, label="in the system"),
            Line2D([], [], **style, label="of them at the gateway"),
        ]
        self._figure.legend(
            handles=handles, loc="center right", bbox_to_anchor=(0.985, 0.338), ncols=2,
            fontsize=SMALL, frameon=False,
        )  # fmt: skip

    def _moved(self, artist):
        """Leave an artist out of the picture behind; it is drawn on every frame."""
        artist.set_animated(True)
        self._moving.append(artist)
        return artist

    # What moves.

    def _fill_instances(self, shown: "_Shown") -> None:
        x = np.arange(len(shown.conditions), dtype=np.float64)
        top = np.where(shown.is_special, float(TOP_SHARE), 0.0)
        used = np.minimum(100.0 * shown.kv_shares, TOP_SHARE)
        wanted = np.minimum(used + 100.0 * shown.wanted_shares, TOP_SHARE)
        self._conditions.set_verts(_boxes(x, np.zeros_like(top), top, 1.0))
        self._conditions.set_facecolor([to_rgba(BEHIND.get(c, "white")) for c in shown.conditions])
        self._used.set_verts(_boxes(x, np.zeros_like(used), used, BAR_WIDTH))
        self._wanted.set_verts(_boxes(x, used, wanted, BAR_WIDTH))
        for word, condition in zip(self._words, shown.conditions, strict=True):
            word.set_text("" if condition == "active" else condition)
        for texts, counts in zip(self._numbers, (shown.running, shown.waiting), strict=False):
            for text, n in zip(texts, counts.tolist(), strict=True):
                text.set_text(short(n))

    def _fill_queues(self, shown: "_Shown") -> None:
        y = np.arange(len(shown.queued), dtype=np.float64)
        self._queues.set_verts(
            [[(0, q - 0.35), (0, q + 0.35), (n, q + 0.35), (n, q - 0.35)]
             for q, n in zip(y, shown.queued.tolist(), strict=True)]
        )  # fmt: skip
        end = self._limits(shown)[0]
        values = zip(self._queue_words, shown.queued.tolist(), shown.head_waits_s, strict=True)
        for text, n, wait_s in values:
            text.set_text(f"{short(n)} ({_seconds(wait_s)})" if n else "0")
            text.set_x(n + 0.02 * end)

    def _fill_texts(self, scene: Scene) -> None:
        self._heading.set_text(f"t = {scene.now_s:,.3f} s")
        facts = scene.facts.text()
        self._facts.set_text(facts if len(facts) <= 100 else facts[:99] + "…")
        self._counts.set_text("    ".join(f"{name} {n:,}" for name, n in scene.counts.items()))

    def _fill_history(self) -> None:
        time_s, total, at_gateway = self._history.arrays()
        self._total.set_data(time_s, total)
        self._at_gateway.set_data(time_s, at_gateway)


class _Shown:
    """The part of a scene that has room in a frame: the first instances and queues."""

    def __init__(self, scene: Scene) -> None:
        m, n = MOST_INSTANCES, MOST_QUEUES
        self.conditions = scene.conditions[:m]
        self.is_special = np.array([c != "active" for c in self.conditions])
        self.kv_shares, self.wanted_shares = scene.kv_shares[:m], scene.wanted_shares[:m]
        self.running, self.waiting = scene.running[:m], scene.waiting[:m]
        self.queued, self.head_waits_s = scene.queued[:n], scene.head_waits_s[:n]


def round_up(x: float, least: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is >= x, and at least `least`."""
    power = 10.0 ** np.floor(np.log10(max(x, least)))
    return next(float(m * power) for m in (1, 2, 5, 10) if m * power >= max(x, least))


def _boxes(
    x: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Return the corners of boxes around x from low to high, float64[n, 4, 2]."""
    left, right = x - width / 2, x + width / 2
    return np.stack(
        [
            np.stack(corner, -1)
            for corner in ((left, low), (left, high), (right, high), (right, low))
        ],
        axis=1,
    )


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)


def _word(axes: Axes, i: int) -> Text:
    """Return a text for the condition of instance i, upwards in its column."""
    return axes.text(i, TOP_SHARE / 2, "", rotation=90, ha="center", va="center", fontsize=SMALL)


def _above(axes: Axes, i: int, row: float) -> Text:
    """Return a text above instance i, at that height of the axes."""
    transform = axes.get_xaxis_transform()
    return axes.text(i, row, "", ha="center", fontsize=SMALL, transform=transform)


def _seconds(wait_s: float) -> str:
    return f"{wait_s:.2f} s" if wait_s < 10 else f"{wait_s:,.0f} s"


def _cut(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
