"""What an arrival process is: n arrival times at a mean rate, drawn from a seed.

Every process draws from streams of its own, so lengths never move with it, and the first m of n
arrivals are the same for every n >= m. Parameters in seconds hold at the rate that is asked for.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from servegym.traces.streams import Seed


class ArrivalProcess(Protocol):
    """A frozen dataclass of parameters, checked when it is made."""

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times in s, float64, non-decreasing, from time 0 on."""
        ...


def require_positive(field: str, value: float) -> None:
    """Refuse a value that is not finite and > 0."""
    if not (np.isfinite(value) and value > 0.0):
        raise ValueError(f"{field} = {value}; must be finite and > 0")


def require_share(field: str, value: float) -> None:
    """Refuse a value outside [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{field} = {value}; must be in [0, 1]")


def require_rates(field: str, values: tuple[float, ...]) -> None:
    """Refuse relative rates that are empty, negative, not finite or all zero."""
    for k, value in enumerate(values):
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"{field}[{k}] = {value}; must be finite and >= 0")
    if not sum(values) > 0.0:
        raise ValueError(f"{field} = {values}; at least one must be > 0")
