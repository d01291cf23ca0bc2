"""A renderer: the pictures of one run in one of gymnasium's modes."""

import sys
from typing import Any

import gymnasium
import numpy as np

from servegym.envs.rendering.painter import Painter
from servegym.envs.rendering.terminal import ansi
from servegym.envs.rendering.window import Window
from servegym.simulator.simulation import Simulation

MODES = ("ansi", "rgb_array", "human")


class Renderer:
    """Draws a paused simulation: text (ansi), uint8[480, 800, 3] (rgb_array), or for a human.

    For a human: in a window, or as text on stdout where matplotlib has no windows.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._painter = Painter()
        self._window = Window() if mode == "human" else None

    def render(self, simulation: Simulation, **facts: Any) -> str | np.ndarray | None:
        """Return the present picture, with scene.Facts; None for a human, who has seen it."""
        if self.mode == "ansi":
            return ansi(simulation, **facts)
        if self.mode == "rgb_array":
            return self._painter.frame(simulation, **facts)
        if self._window is not None:
            try:
                self._window.show(self._painter.frame(simulation, **facts))
            except gymnasium.error.DependencyNotInstalled:
                self._window = None
        if self._window is None:
            print(ansi(simulation, colour=sys.stdout.isatty(), **facts))
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
