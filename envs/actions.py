"""Actions as callers give them, checked before anything happens, and in words.

ValueError for what is malformed or out of range.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from servegym.envs.options import HEADROOM_HIGHEST, HEADROOM_PARAMS, Options

HALF_LEVELS = np.array(HEADROOM_HIGHEST) / 2
LEVEL_DECIMALS = 6  # about what float32 can tell apart


def check_action(space: spaces.Space, action: Any) -> np.ndarray:
    """Return one action as int64[] (Discrete) or float64[2] (Box); a number as NumPy or Python makes it."""
    return check_actions(space, np.asarray(action)[None], 1)[0]


def check_actions(space: spaces.Space, actions: Any, n: int) -> np.ndarray:
    """Return n actions as int64[n] or float64[n, 2]; ValueError names the first that is no action of the space."""
    array = np.asarray(actions)
    shape = (n, *space.shape) if isinstance(space, spaces.Box) else (n,)
    if array.shape != shape:
        raise ValueError(
            f"actions of shape {array.shape[1:]} each, {len(array) if array.ndim else 0} of them; "
            f"expected {n} of shape {shape[1:]}"
        )
    if isinstance(space, spaces.Discrete):
        return _check_whole(array, int(space.n))
    assert isinstance(space, spaces.Box)
    return _check_box(array, space)


def _check_whole(array: np.ndarray, n_actions: int) -> np.ndarray:
    if array.dtype.kind not in "iu":
        raise ValueError(f"action = {array.flat[0]!r}; must be a whole number, of an integer type")
    whole = array.astype(np.int64)
    if whole.view(np.uint64).max() >= n_actions:  # a negative one is large there
        e = int(np.argmax((whole < 0) | (whole >= n_actions)))
        raise ValueError(f"action[{e}] = {array[e]}; must be in 0 .. {n_actions - 1}")
    return whole


def _check_box(array: np.ndarray, space: spaces.Box) -> np.ndarray:
    if array.dtype.kind not in "fiu":
        raise ValueError(f"action = {array.flat[0]!r}; must be numbers")
    is_good = (array >= space.low) & (array <= space.high)  # NaN is neither
    if not is_good.all():
        e = int(np.argmin(is_good.all(axis=-1)))
        raise ValueError(
            f"action[{e}] = {array[e].tolist()}; must be in {space.low.tolist()} .. {space.high.tolist()}"
        )
    return array.astype(np.float64)


def levels_of(actions: np.ndarray) -> np.ndarray:
    """Return headroom's peak and decay, float64[..., 2], for actions in [-1, 1]: from 0 to the highest.

    Rounded, so that levels of a few decimals, such as the papers', are met exactly.
    """
    return np.round((np.asarray(actions, np.float64) + 1.0) * HALF_LEVELS, LEVEL_DECIMALS)


def action_of(levels: Any) -> np.ndarray:
    """Return the action, float32[2], that sets headroom's [peak, decay]; ValueError for what no action sets."""
    for name, value, highest in zip(HEADROOM_PARAMS, levels, HEADROOM_HIGHEST, strict=True):
        if not 0 <= value <= highest:
            raise ValueError(f"{name} = {value}; Headroom-v0 sets 0 .. {highest:g}")
    return (np.asarray(levels, np.float64) / HALF_LEVELS - 1.0).astype(np.float32)


def describe(options: Options, action: int, levels: np.ndarray) -> str:
    """Return an action in words."""
    m = options.n_instances
    if options.kind == "dispatch":
        return f"instance {action}"
    if options.kind == "admission":
        return ("accept", "hold", "reject")[action]
    if options.kind == "ordering":
        return f"queue {action}"
    if options.kind == "serve":
        is_wait = action == options.n_actions - 1
        return "wait" if is_wait else f"queue {action // m} to instance {action % m}"
    if options.kind == "migration":
        return "nothing" if action == m * m else f"from instance {action // m} to {action % m}"
    if options.kind == "scaling":
        return ("drain", "keep", "add")[action]
    return f"peak {levels[0]:.3g}, decay {levels[1]:.3g}"
