"""Seconds at the edges, int64 picoseconds inside: each value is converted once."""

import math

import numpy as np

from servegym.simulator.state import LATEST_PS

PS_PER_S = 1e12
LATEST_S = LATEST_PS / PS_PER_S


def rint_ps(seconds: np.ndarray) -> np.ndarray:
    """Return an array of seconds as int64 picoseconds, half to even."""
    return np.rint(seconds * PS_PER_S).astype(np.int64)


def to_ps(seconds: float, name: str) -> int:
    """Return seconds as whole picoseconds; ValueError if it is not in 0 .. 106 days."""
    is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} = {seconds!r}; must be a finite number >= 0")
    if seconds > LATEST_S:
        raise ValueError(
            f"{name} = {seconds}; must be <= {LATEST_S:.0f} s (106 days of int64 picoseconds)"
        )
    return int(np.rint(seconds * PS_PER_S))


def to_seconds(ps: np.ndarray) -> np.ndarray:
    """Return integer picoseconds as float64 seconds."""
    return ps / PS_PER_S
