"""The mean arrival rate that a run is offered: a load, a rate, or as recorded.

Load 1.0 is what the cluster sustains with the lengths of the whole source (saturation). A trace is then
scaled to exactly that mean rate, so that seeds and episodes differ in lengths and bursts, not in rate.
"""

import numpy as np

from servegym.traces import Trace, Workload

Source = Trace | Workload


def check_load_and_rate(source: Source, load: float | None, rate_per_s: float | None) -> None:
    """ValueError unless at most one is given, it is > 0, and the source has a rate without either."""
    if load is not None and rate_per_s is not None:
        raise ValueError(
            f"load and rate exclude each other; load = {load} and rate_per_s = {rate_per_s}"
        )
    for name, value in (("load", load), ("rate_per_s", rate_per_s)):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and np.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} = {value!r}; must be finite and > 0")
    if isinstance(source, Workload) and source.recorded_rate_per_s is load is rate_per_s is None:
        raise ValueError(f"{source.name} was recorded without times; give a load or a rate")


def offered_rate(
    source: Source, load: float | None, rate_per_s: float | None, saturation_per_s: float | None
) -> float | None:
    """Return the requests per second asked for; None: a trace at its own times.

    Neither load nor rate: a workload's recorded rate. saturation_per_s is read for a load only.
    """
    if load is not None:
        assert saturation_per_s is not None
        return load * saturation_per_s
    if rate_per_s is None and isinstance(source, Workload):
        return source.recorded_rate_per_s
    return rate_per_s
