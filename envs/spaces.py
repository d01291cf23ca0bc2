"""Spaces: what an environment of given options shows and takes.

Observations are float32 in [0, LIMIT], a Dict of parts, or one flat Box in the order of gymnasium's `flatten`.
"""

import math

import numpy as np
from gymnasium import spaces

from servegym.baselines.features import LIMIT
from servegym.envs.observation import PARTS
from servegym.envs.options import HEADROOM_PARAMS, Options

Places = dict[str, tuple[slice, tuple[int, ...]]]

MASK = "action_mask"


def action_space(options: Options) -> spaces.Space:
    """Return Discrete(actions), for headroom Box(-1, 1): peak and decay (actions.levels_of)."""
    if options.kind == "headroom":
        return spaces.Box(-1.0, 1.0, (len(HEADROOM_PARAMS),), np.float32)
    return spaces.Discrete(options.n_actions)


def part_shape(options: Options, part: str) -> tuple[int, ...]:
    """Return the shape of one part of an observation, a vector: its rows, one after the other."""
    return (options.rows[part] * len(options.features[part]),)


def observed_parts(options: Options) -> list[str]:
    """Return the parts that have any feature chosen, in order."""
    return [part for part in PARTS if options.features[part]]


def observation_space(options: Options, flatten: bool, has_mask: bool) -> spaces.Space:
    """Return the space of one observation."""
    if flatten:
        return _box((options.n_observed,))
    parts: dict[str, spaces.Space] = {
        part: _box(part_shape(options, part)) for part in observed_parts(options)
    }
    if has_mask:
        parts[MASK] = spaces.MultiBinary(options.n_actions)
    return spaces.Dict(parts)


def _box(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(0.0, LIMIT, shape, np.float32)


def places(options: Options) -> Places:
    """Return where the observed parts lie in the last axis of a flat observation, and their shapes."""
    found, begin = {}, 0
    for part in observed_parts(options):
        shape = part_shape(options, part)
        end = begin + math.prod(shape)
        found[part] = slice(begin, end), shape
        begin = end
    return found


def split(places: Places, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parts of observations float32[..., D] as views of them."""
    return {
        part: flat[..., place].reshape(*flat.shape[:-1], *shape)
        for part, (place, shape) in places.items()
    }
