"""What is played: a trace file or a fitted workload, at a load, a rate or as recorded (offered_rate).

Every seed's own mean rate is exactly the one asked for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servegym.baselines.offered_rate import Source, offered_rate
from servegym.baselines.saturation import scale_to_rate
from servegym.experiments.blocks import blocks_of_file, draws_of_workload
from servegym.traces import Trace, Workload
from servegym.traces import load as load_trace
from servegym.traces import workload as find_workload


def find_source(trace: Trace | str | Path | None, workload: str | Path | Workload) -> Source:
    """Return what is played: the trace, read if it is a path, else the fitted workload."""
    if trace is None:
        return workload if isinstance(workload, Workload) else find_workload(workload)
    return trace if isinstance(trace, Trace) else load_trace(trace)


def traces_by_seed(
    source: Source, seeds: int, n_requests: int, whole: bool, seed: int, arrivals: str | None = None
) -> dict[int, Trace]:
    """Return what each seed plays, times as recorded or drawn; ValueError as in blocks.py."""
    if isinstance(source, Trace):
        if arrivals is not None:
            raise ValueError(f"arrivals = {arrivals!r}; a trace has its own arrivals")
        return {seed: source} if whole else blocks_of_file(source, seeds, seed)
    if whole:
        raise ValueError("whole plays a trace file once; a fitted workload has no end")
    return draws_of_workload(source, n_requests, seeds, seed, arrivals or "poisson")


def with_tiers(traces: Mapping[int, Trace], mix: str | None, tiers: int) -> dict[int, Trace]:
    """Return the traces with tiers drawn from a mix by name (None: as they are); seed s draws with s."""
    if mix is None:
        return dict(traces)
    return {seed: trace.assign_tiers(mix, seed, tiers) for seed, trace in traces.items()}


def at_rate(
    traces: Mapping[int, Trace],
    source: Source,
    load: float | None,
    rate_per_s: float | None,
    saturation_per_s: float,
) -> dict[int, Trace]:
    """Return the traces with inter-arrivals scaled to the load or rate asked for.

    Neither: a trace as it is, a workload at its recorded rate. ValueError for a trace without a rate.
    """
    rate = offered_rate(source, load, rate_per_s, saturation_per_s)
    if rate is None:
        return dict(traces)
    return {seed: scale_to_rate(trace, rate) for seed, trace in traces.items()}


def mean_rate(traces: Mapping[int, Trace]) -> float | None:
    """Return the mean over seeds of the mean arrival rate, requests/s; None if one has no rate."""
    rates = [trace.mean_rate_per_s for trace in traces.values()]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known and len(known) == len(rates) else None


def source_options(trace: object, workload: object, n_requests: int) -> dict[str, Any] | None:
    """Return what was played as options of the command line; None if it was given as an object."""
    if isinstance(trace, str | Path):
        return {"trace": str(trace)}
    if trace is None and isinstance(workload, str | Path):
        return {"workload": str(workload), "requests": n_requests}
    return None
