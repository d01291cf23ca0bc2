"""Spaces: what an environment of given options shows and takes.

Observations are float32 in [0, LIMIT], a Dict of parts, or one flat Box in the order of gymnasium's `flatten`.
"""

import numpy as np
from gymnasium import spaces

from servegym.baselines.features import LIMIT
from servegym.envs.observation import PARTS
from servegym.envs.options import HEADROOM_PARAMS, Options

MASK = "action_mask"


def action_space(options: Options) -> spaces.Space:
    """Return Discrete(actions), for headroom Box(-1, 1): peak and decay (actions.levels_of)."""
    if options.kind == "headroom":
        return spaces.Box(-1.0, 1.0, (len(HEADROOM_PARAMS),), np.float32)
    return spaces.Discrete(options.n_actions)


def observation_space(options: Options, flatten: bool, has_mask: bool) -> spaces.Space:
    """Return the space of one observation."""
    if flatten:
        return _box((options.n_observed,))
    parts: dict[str, spaces.Space] = {
        part: _box((place.stop - place.start,)) for part, place in places(options).items()
    }
    if has_mask:
        parts[MASK] = spaces.MultiBinary(options.n_actions)
    return spaces.Dict(parts)


def _box(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(0.0, LIMIT, shape, np.float32)


def places(options: Options) -> dict[str, slice]:
    """Return where each part that has any feature chosen lies in a flat observation, row after row."""
    found, begin = {}, 0
    for part in PARTS:
        end = begin + options.rows[part] * len(options.features[part])
        if end > begin:
            found[part] = slice(begin, end)
        begin = end
    return found


def split(parts: dict[str, slice], flat: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parts of observations float32[..., D], which lie at these places, as views of them."""
    return {part: flat[..., place] for part, place in parts.items()}
