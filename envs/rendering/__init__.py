"""Pictures of a paused simulation: text for a terminal, frames for a video, a window.

    print(ansi(simulation, role="dispatch", action="instance 3"))
    painter = Painter(); frame = painter.frame(simulation, step=17)     # uint8[480, 800, 3]

All draw a Scene (scene.py), which is read once; looking never changes a run (docs/engine.md section 2). Nothing here
knows of environments: what only they know (step, action, reward) comes as keywords.
"""

from servegym.envs.rendering.painter import Painter, rgb_array
from servegym.envs.rendering.scene import Scene, look
from servegym.envs.rendering.terminal import ansi
from servegym.envs.rendering.window import Window

__all__ = ["Painter", "Scene", "Window", "ansi", "look", "rgb_array"]
