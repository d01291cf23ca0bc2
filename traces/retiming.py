"""New times for the same requests: scale_rate, shift, spread_batches. They are methods of Trace.

Lengths, labels and order stay as they are.
"""

from typing import TYPE_CHECKING

import numpy as np

from servegym.traces.streams import stream

if TYPE_CHECKING:
    from servegym.traces.trace import Trace


def scale_rate(trace: "Trace", factor: float) -> "Trace":
    """Divide every inter-arrival time by factor and change nothing else.

    The first arrival stays where it is. ValueError unless factor is finite and > 0.
    """
    if not (np.isfinite(factor) and factor > 0.0):
        raise ValueError(f"factor = {factor}; must be finite and > 0")
    if factor == 1.0 or not len(trace):
        return trace
    first = trace.arrival_s[0]
    return trace.replaced(
        arrival_s=first + (trace.arrival_s - first) / factor,
        resolution_s=None if trace.resolution_s is None else trace.resolution_s / factor,
        notes=(*trace.notes, f"rate times {factor:g}"),
    )


def shift(trace: "Trace", offset_s: float) -> "Trace":
    """Add offset_s (s, may be negative) to every arrival; ValueError if one falls below 0."""
    arrival_s = trace.arrival_s + offset_s
    return trace.replaced(arrival_s=arrival_s, notes=(*trace.notes, f"shifted by {offset_s:g} s"))


def spread_batches(trace: "Trace", seed: int, interval_s: float | None = None) -> "Trace":
    """Spread requests of equal time uniformly over the interval that follows it, order kept.

    For times that were recorded only every interval_s (None: the trace's own resolution_s), such as
    Mooncake's 3 s or BurstGPT's 1 s. A batch never reaches the next recorded time. ValueError
    without an interval > 0.
    """
    interval = trace.resolution_s if interval_s is None else interval_s
    if interval is None:
        raise ValueError("times are not on a known grid; say how far to spread with interval_s")
    if not (np.isfinite(interval) and interval > 0.0):
        raise ValueError(f"interval_s = {interval}; must be finite and > 0")
    times, batch = np.unique(trace.arrival_s, return_inverse=True)
    room = np.minimum(np.diff(times, append=np.inf), interval)
    places = stream(seed, "spread").random(len(trace))
    places = places[np.lexsort((places, batch))]  # increasing within each batch
    return trace.replaced(
        arrival_s=np.minimum(times[batch] + places * room[batch], latest(times, room)[batch]),
        resolution_s=None,
        notes=(*trace.notes, f"equal times spread over {interval:g} s, seed {seed}"),
    )


def latest(times: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return the last instant before each interval's end: rounding must not reach the next."""
    return np.maximum(times, np.nextafter(times + room, 0.0))
