"""DriftSched's tasks with output lengths that drift at several speeds, by name: what the study `ema` plays.

From request 500 on, outputs go to 2, .5, 1.5 and .75 times what they were, by task: at once (`drift-sudden`), over 500
or 2,000 requests (`drift-500`, `drift-2000`), or never (`drift-none`). The tasks, their mix and their lengths are those
of traces/driftsched.py; its published drift begins when most of its requests have been predicted (docs/driftsched.md).
"""

from pathlib import Path

from servegym.baselines.offered_rate import Source
from servegym.experiments.sources import find_source
from servegym.traces import Workload
from servegym.traces.demand.categories import LengthDrift
from servegym.traces.driftsched import driftsched, tasks

FACTORS = (2.0, 0.5, 1.5, 0.75)  # short_qa, summary, technical, report
START = 500
SPEEDS = {"drift-none": None, "drift-2000": 2_000, "drift-500": 500, "drift-sudden": 0}


def drifting(name: str) -> Workload:
    """Return the workload of a drift speed."""
    n_requests = SPEEDS[name]
    drift = None if n_requests is None else LengthDrift(START, START + n_requests, FACTORS)
    return driftsched(name, name, tasks(drift=drift))


def find_played(trace: str | None, workload: str) -> Source:
    """Return what is played: a trace file, a drift speed, or any other workload by name."""
    if trace is None and workload in SPEEDS:
        return drifting(workload)
    return find_source(Path(trace) if trace else None, workload)
