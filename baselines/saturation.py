"""Load 1.0: the saturation rate of a fleet, and traces scaled to a multiple of it.

The sum over instances of what one instance of that profile and engine finishes per second, between
the 20th and the 80th percentile completion of 20,000 requests that all wait there at t = 0, fcfs;
their lengths are drawn with a fixed seed from the workload's. No dispatch takes part. The largest
rate that meets an SLO is another thing. Cached on disk by content: one small file per profile.
"""

import json
import os
import tempfile
from collections import Counter
from dataclasses import astuple
from hashlib import blake2b
from pathlib import Path

import numpy as np

from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import SIMULATOR_HASH, cache_root
from servegym.simulator.policy import find_policy
from servegym.simulator.profiles import find_profile
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.traces import Trace, Workload
from servegym.traces.streams import stream

DRAWN_REQUESTS = 20_000
DRAW_SEED = 20_000
FIRST_SHARE, LAST_SHARE = 0.2, 0.8  # of the completions, the part that is measured
DISPATCH = "round-robin"  # one instance: any policy is the same


def saturation_rate(workload: Trace | Workload, config: ClusterConfig) -> float:
    """Return the requests per second that the fleet finishes when work never runs out.

    An instance that can hold none of the requests adds nothing. ValueError for an empty trace, or when no
    instance can hold any.
    """
    lengths = draw_lengths(workload)
    profiles = (config.profile,) if isinstance(config.profile, str) else config.profile
    counts = Counter(profiles[i % len(profiles)] for i in range(config.instances))
    rate = sum(n * _instance_rate(lengths, alone(config, name)) for name, n in counts.items())
    if rate == 0:
        raise ValueError(f"saturation rate: no request fits an instance of {', '.join(counts)}")
    return rate


def scale_to_load(
    trace: Trace, config: ClusterConfig, load: float, workload: Trace | Workload | None = None
) -> Trace:
    """Return the trace with inter-arrivals scaled so that its mean rate is load * saturation rate.

    workload: whose lengths saturate the fleet, the trace's own by default; give the whole trace for
    a block of it. ValueError for a bad load or a trace without a rate.
    """
    if not (np.isfinite(load) and load > 0):
        raise ValueError(f"load = {load}; must be finite and > 0")
    _require_rate(trace)
    lengths_of = trace if workload is None else workload
    return scale_to_rate(trace, load * saturation_rate(lengths_of, config))


def scale_to_rate(trace: Trace, rate_per_s: float) -> Trace:
    """Return the trace with inter-arrivals scaled to a mean rate. ValueError if it has none."""
    if not (np.isfinite(rate_per_s) and rate_per_s > 0):
        raise ValueError(f"rate_per_s = {rate_per_s}; must be finite and > 0")
    return trace.scale_rate(rate_per_s / _require_rate(trace))


def draw_lengths(workload: Trace | Workload) -> tuple[np.ndarray, np.ndarray]:
    """Return DRAWN_REQUESTS prompt and output lengths, int32; pairs of a trace stay together."""
    if isinstance(workload, Workload):
        return workload.draw_lengths(DRAWN_REQUESTS, DRAW_SEED)
    if not len(workload):
        raise ValueError("an empty trace has no lengths, so no saturation rate")
    rows = stream(DRAW_SEED, "saturation").integers(len(workload), size=DRAWN_REQUESTS)
    return workload.prompt_tokens[rows], workload.output_tokens[rows]


def alone(config: ClusterConfig, profile: str) -> ClusterConfig:
    """Return the config of one instance of a profile, all but its engine at default."""
    engine = {
        name: getattr(config, name)
        for name in (
            "engine",
            "max_num_seqs",
            "max_num_batched_tokens",
            "kv_blocks",
            "block_size",
            "watermark",
            "reserve_full_prompt",
            "bypass_blocked",
            "batch_size",
            "batch_wait_s",
            "calibration",
            "host_overhead_ms",
        )
    }
    return ClusterConfig(instances=1, profile=profile, **engine)


def measure_rate(lengths: tuple[np.ndarray, np.ndarray], config: ClusterConfig) -> float:
    """Return the requests per second that one instance finishes (uncached).

    Completions after the 20th percentile one, up to the 80th, over the time between the two; all
    over the whole time if those two coincide (one static batch); 0 if it can hold none of them.
    """
    trace = Trace(np.zeros(len(lengths[0])), *lengths)
    simulation = Simulation(trace, config, find_policy("dispatch", DISPATCH))
    simulation.run()
    requests = simulation.state.requests
    ends = np.sort(requests["finish_ps"][requests["status"] == FINISHED])
    if not len(ends):
        return 0.0
    first, last = (ends[int(share * (len(ends) - 1))] for share in (FIRST_SHARE, LAST_SHARE))
    if first == last:
        return float(len(ends) / (ends[-1] / PS_PER_S))
    return float(((ends > first) & (ends <= last)).sum() / ((last - first) / PS_PER_S))


def _require_rate(trace: Trace) -> float:
    if trace.mean_rate_per_s is None:
        raise ValueError(
            f"a trace of {len(trace)} requests over {trace.span_s} s has no rate to scale"
        )
    return trace.mean_rate_per_s


def _instance_rate(lengths: tuple[np.ndarray, np.ndarray], config: ClusterConfig) -> float:
    """Return measure_rate, from the disk if it is known there."""
    path = cache_root() / "saturation" / f"{_key(lengths, config)}.json"
    try:
        rate = float(json.loads(path.read_text())["rate_per_s"])
        if np.isfinite(rate) and rate >= 0:
            return rate
    except (OSError, ValueError, KeyError, TypeError):
        pass
    rate = measure_rate(lengths, config)
    _write_whole(path, json.dumps({"rate_per_s": rate, "profile": config.profile}))
    return rate


def _key(lengths: tuple[np.ndarray, np.ndarray], config: ClusterConfig) -> str:
    """Return a hash of everything the rate depends on."""
    row = find_profile(str(config.profile))
    parts = (
        SIMULATOR_HASH,
        FIRST_SHARE,
        LAST_SHARE,
        astuple(row),
        sorted(config.model_dump().items()),
    )
    digest = blake2b(repr(parts).encode(), digest_size=16)
    for column in lengths:
        digest.update(column.astype("<i4").tobytes())
    return digest.hexdigest()


def _write_whole(path: Path, text: str) -> None:
    """Write a file at once, so that a reader or another writer never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
