"""Which requests were preempted between the samples of a run, and how long they then waited.

The engine keeps counts, no history; comparing the counts at one sample with those at the sample
before finds every preemption to within one sample.
"""

import numpy as np

from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED

EVICTION = np.dtype(
    [
        ("request", "i4"),  # its place in the order of arrival
        ("sample", "i4"),  # the first sample at which it was seen preempted
        ("until", "i4"),  # the first at which it ran again or was gone; `sample`: it ran already
        ("times", "i4"),  # preemptions since the sample before
    ]
)


class Evictions:
    """Follows preempted requests from sample to sample."""

    def __init__(self, n_requests: int) -> None:
        self.counted = np.zeros(n_requests, np.int32)
        self.waiting: dict[int, list[int]] = {}  # request: its last row, not yet closed
        self.rows: list[list[int]] = []

    def look(self, simulation: Simulation, k: int) -> None:
        """Take sample k: open a row for who was preempted, close it for who runs again or is gone."""
        requests = simulation.state.requests
        again = waiting_again(simulation)
        rise = requests["preemptions"] - self.counted
        for r in np.flatnonzero(rise).tolist():
            self.close(r, k)
            self.rows.append([r, k, k, int(rise[r])])
            self.waiting[r] = self.rows[-1]
        self.counted += rise
        for r in [r for r in self.waiting if r not in again]:
            self.close(r, k)

    def close(self, r: int, k: int) -> None:
        """Say that request r no longer waits at sample k, if it did."""
        row = self.waiting.pop(r, None)
        if row is not None:
            row[2] = k

    def finish(self, last: int) -> np.ndarray:
        """Return all rows as EVICTION[]; who still waits does so to the last sample."""
        for r in list(self.waiting):
            self.close(r, last)
        return np.array([tuple(row) for row in self.rows], EVICTION)


def waiting_again(simulation: Simulation) -> set[int]:
    """Return the requests that were preempted and do not run at the present instant."""
    state = simulation.state
    requests = state.requests
    is_open = (requests["preemptions"] > 0) & (requests["status"] < FINISHED)
    if not is_open.any():
        return set()
    running = [
        state.slots["request"][first : first + n]
        for first, n in zip(
            state.instances["first_slot"].tolist(),
            state.instances["n_running"].tolist(),
            strict=True,
        )
    ]
    is_open[np.concatenate(running)] = False
    return set(np.flatnonzero(is_open).tolist())
