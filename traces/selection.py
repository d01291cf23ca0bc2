"""Parts of a trace: take, window, head, block, sample. They are methods of Trace.

Every part keeps all columns and labels, stays in order of arrival and says in `notes` what it is.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from servegym.traces.streams import stream

if TYPE_CHECKING:
    from servegym.traces.trace import Trace

ARRAYS = ("prompt_tokens", "output_tokens", "tier")
OPTIONAL = ("category", "tenant", "model", "session", "prefix_blocks")


def take(trace: "Trace", chosen: slice | NDArray[np.int64], origin_s: float, note: str) -> "Trace":
    """Return some requests, in order, with arrivals counted from origin_s (s), and a note."""
    optional = {name: getattr(trace, name) for name in OPTIONAL}
    return trace.replaced(
        arrival_s=trace.arrival_s[chosen] - origin_s,
        **{name: getattr(trace, name)[chosen] for name in ARRAYS},
        **{name: None if part is None else part.take(chosen) for name, part in optional.items()},
        notes=(*trace.notes, note),
    )


def window(trace: "Trace", start_s: float | None = None, end_s: float | None = None) -> "Trace":
    """Keep start_s <= arrival < end_s (s); arrivals then count from start_s (None: from 0)."""
    start, end = window_of(start_s, end_s)
    first, stop = (int(i) for i in np.searchsorted(trace.arrival_s, [start, end]))
    return take(trace, slice(first, stop), start, window_note(start, end))


def window_of(start_s: float | None, end_s: float | None) -> tuple[float, float]:
    """Return the bounds of a window, 0 and infinity for None; ValueError if they are none."""
    start = 0.0 if start_s is None else start_s
    end = np.inf if end_s is None else end_s
    if not 0.0 <= start <= end:
        raise ValueError(f"window = [{start}, {end}); must be 0 <= start_s <= end_s")
    return start, end


def window_note(start_s: float, end_s: float) -> str:
    """Say which window (s) was kept."""
    return f"window [{start_s:g}, {end_s:g}) s"


def head(trace: "Trace", n: int) -> "Trace":
    """Keep the first n requests (all of them when there are fewer)."""
    if n < 0:
        raise ValueError(f"n = {n}; must be >= 0")
    return take(trace, slice(0, n), 0.0, f"first {n:,} requests")


def block(trace: "Trace", k: int, n_blocks: int) -> "Trace":
    """Return block k of n_blocks contiguous, disjoint blocks; arrivals count from its first.

    Sizes differ by at most one request. ValueError unless 0 <= k < n_blocks <= n.
    """
    if not 0 <= k < n_blocks <= len(trace):
        expected = f"must be 0 <= k < n_blocks <= {len(trace)} requests"
        raise ValueError(f"k = {k}, n_blocks = {n_blocks}; {expected}")
    first, stop = k * len(trace) // n_blocks, (k + 1) * len(trace) // n_blocks
    origin_s = float(trace.arrival_s[first])
    return take(trace, slice(first, stop), origin_s, f"block {k} of {n_blocks}")


def sample(trace: "Trace", n: int, seed: int) -> "Trace":
    """Keep n requests drawn at random without replacement, at their times.

    The rate falls to n / len(trace) of what it was; bursts thin out. ValueError unless
    0 <= n <= len(trace).
    """
    if not 0 <= n <= len(trace):
        raise ValueError(f"n = {n}; must be >= 0 and at most the {len(trace):,} requests there are")
    chosen = np.sort(stream(seed, "sample").choice(len(trace), n, replace=False))
    return take(trace, chosen, 0.0, f"sample of {n:,} from {len(trace):,} requests, seed {seed}")
