"""BurstGPT 1 to 3: CSV with Timestamp (s), Model, Request tokens, Response tokens, Log Type.

Times are whole seconds and count from midnight of the file's first day: BurstGPT_3 begins on day 225
of the clock that BurstGPT_1 starts. Failed requests have 0 response tokens. Model, Log Type (as
category) and, in BurstGPT_3, Session ID are kept; API calls have no session. The measured Elapsed
time is not. Source: github.com/HPMLL/BurstGPT (Wang et al., KDD 2025).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Clock, Format

DAY_S = 86_400.0


def midnight(earliest_s: Any) -> Any:
    """Count from the start of the earliest row's day, and never from before 0."""
    return np.maximum(earliest_s // DAY_S * DAY_S, 0.0)


def whole_seconds(arrival_s: NDArray[np.float64]) -> float | None:
    """Return 1 s if all times are whole seconds."""
    return 1.0 if len(arrival_s) and (arrival_s == np.floor(arrival_s)).all() else None


FORMAT = Format(
    name="BurstGPT",
    arrival="Timestamp",
    prompt="Request tokens",
    output="Response tokens",
    clock=Clock(
        origin=midnight, origin_note="arrivals count from second {:,.0f} of BurstGPT's clock"
    ),
    labels={"model": "Model", "category": "Log Type", "session": "Session ID"},
    resolution=whole_seconds,
)
