"""A scene as a frame for a video: KV use by instance, queues at the gateway, and requests in the system over time.

What rarely changes (axes, ticks, names) is drawn once and kept as a picture; a frame restores it and draws bars,
lines and numbers on top, which takes about 20 ms. An axis that must grow grows to the next 1, 2 or 5 times a power of
ten, and the picture is drawn anew. Left out: instances beyond the 64th and queues beyond the 8th are only counted.
"""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from servegym.envs.rendering.history import History
from servegym.envs.rendering.history_panel import HistoryPanel
from servegym.envs.rendering.instance_panel import InstancePanel
from servegym.envs.rendering.panel import SMALL, TEXT
from servegym.envs.rendering.queue_panel import QueuePanel
from servegym.envs.rendering.scene import Scene, look
from servegym.simulator.simulation import Simulation

DPI = 100
LONGEST_FACTS = 100  # signs
# Left, bottom, width and height of the panels, in shares of the frame.
INSTANCES, QUEUES, HISTORY = (
    (0.085, 0.47, 0.53, 0.33),
    (0.765, 0.47, 0.21, 0.33),
    (0.085, 0.105, 0.89, 0.21),
)


def rgb_array(
    simulation: Simulation,
    *,
    step: int | None = None,
    role: str = "",
    action: str = "",
    reward: float | None = None,
) -> NDArray[np.uint8]:
    """Return one frame, uint8[480, 800, 3]. For several, a Painter is several times as fast and knows the past."""
    return Painter().frame(simulation, step=step, role=role, action=action, reward=reward)


class Painter:
    """Frames of one size. It remembers the requests in the system at each frame; time that goes back is forgotten."""

    def __init__(self, width: int = 800, height: int = 480) -> None:
        self.shape = (height, width, 3)
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        self._canvas = FigureCanvasAgg(self._figure)
        self._history = History()
        self._drawn_for: tuple[object, ...] = ()  # what decides how the picture behind looks
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
        ends = (QueuePanel.end_for(scene), *HistoryPanel.ends_for(self._history))
        wanted = (len(scene.conditions), tuple(scene.queue_names), *ends)
        if wanted != self._drawn_for:
            self._lay_out(scene)
            self._drawn_for = wanted
        self._canvas.restore_region(self._behind)
        self._say(scene)
        self._instances.fill(scene)
        self._queues.fill(scene)
        self._past.fill(self._history)
        for artist in self._moving():
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _lay_out(self, scene: Scene) -> None:
        """Draw everything that does not move, and make the artists of what does."""
        figure = self._figure
        figure.clear()
        self._time = figure.text(0.012, 0.955, "", fontsize=12, animated=True)
        self._facts = figure.text(0.21, 0.956, "", fontsize=TEXT, animated=True)
        self._counts = figure.text(0.012, 0.905, "", fontsize=TEXT, animated=True)
        self._instances = InstancePanel(figure.add_axes(INSTANCES), scene)
        self._queues = QueuePanel(figure.add_axes(QUEUES), scene)
        self._past = HistoryPanel(figure.add_axes(HISTORY), self._history)
        style = {"loc": "center right", "fontsize": SMALL, "frameon": False, "columnspacing": 1.0}
        handles = self._instances.handles()
        figure.legend(
            handles=handles, bbox_to_anchor=(0.63, 0.398), ncols=3, handlelength=1.4, **style
        )
        figure.legend(handles=self._past.handles(), bbox_to_anchor=(0.985, 0.338), ncols=2, **style)
        self._canvas.draw()
        self._behind = self._canvas.copy_from_bbox(figure.bbox)

    def _say(self, scene: Scene) -> None:
        """Write the two lines at the top."""
        facts = scene.facts.text()
        self._time.set_text(f"t = {scene.now_s:,.3f} s")
        self._facts.set_text(
            facts if len(facts) <= LONGEST_FACTS else f"{facts[: LONGEST_FACTS - 1]}…"
        )
        self._counts.set_text("    ".join(f"{name} {n:,}" for name, n in scene.counts.items()))

    def _moving(self) -> list[Artist]:
        """Return what is drawn on every frame."""
        texts = [self._time, self._facts, self._counts]
        panels = (self._instances, self._queues, self._past)
        return [*texts, *(artist for panel in panels for artist in panel.moving)]
