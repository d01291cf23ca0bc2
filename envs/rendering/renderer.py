"""A renderer: the pictures of one run in one of gymnasium's modes."""

import sys

import gymnasium
import numpy as np

from servegym.envs.rendering.painter import Painter
from servegym.envs.rendering.scene import Facts, look
from servegym.envs.rendering.terminal import text_of
from servegym.envs.rendering.window import Window
from servegym.simulator.simulation import Simulation

MODES = ("ansi", "rgb_array", "human")


class Renderer:
    """Draws a paused simulation: text (ansi), uint8[480, 800, 3] (rgb_array), or for a human.

    For a human: in a window, or as text on stdout where matplotlib has no windows.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._painter = Painter() if mode != "ansi" else None
        self._window = Window() if mode == "human" else None

    def render(self, simulation: Simulation, facts: Facts) -> str | np.ndarray | None:
        """Return the present picture; None for a human, who has seen it."""
        if self._painter is None:
            return text_of(look(simulation, facts))
        if self._window is None:
            return self._painter.draw(look(simulation, facts))
        try:
            self._window.show(self._painter.draw(look(simulation, facts)))
        except gymnasium.error.DependencyNotInstalled:
            self._window = None
            self.mode, self._painter = "text", None
        if self._painter is None:
            sys.stdout.write(text_of(look(simulation, facts), colour=sys.stdout.isatty()) + "\n")
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
