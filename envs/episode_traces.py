"""EpisodeTraces: what an episode plays, a pure function of its SeedSequence.

Random, from named streams of the sequence: of a fitted workload everything, arrivals and lengths; of a
trace longer than an episode where the window begins; of either the tiers, if a mix is given. The mean
rate is not: every episode is scaled to exactly the rate asked for, as the seeds of a comparison are.
An episode can be played again outside an environment: `servegym.simulate(env.unwrapped.trace, ...)`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from servegym.baselines.offered_rate import Source, check_load_and_rate, offered_rate
from servegym.baselines.saturation import saturation_rate, scale_to_rate
from servegym.simulator.config import ClusterConfig
from servegym.traces import Trace, Workload, generate
from servegym.traces import load as load_trace
from servegym.traces import workload as find_workload
from servegym.traces.arrivals import ArrivalProcess
from servegym.traces.streams import stream
from servegym.traces.workload import FILE_ENDING, choose_process

LEAST_REQUESTS = 2  # one request has no rate


class EpisodeTraces:
    """Draws the trace of each episode.

    source: the Trace or Workload that is played. rate_per_s: the mean rate of every episode,
    requests/s; None: a trace at its own times. is_fixed: every episode of a seed plays its first.
    """

    def __init__(
        self,
        config: ClusterConfig,
        workload: str | Path | Workload | Trace = "azure-conv",
        *,
        episode_requests: int = 2000,
        load: float | None = None,
        rate_per_s: float | None = None,
        arrivals: str | ArrivalProcess | None = None,
        tier_mix: str | Sequence[float] | None = None,
        fixed: bool = False,
    ) -> None:
        """Check everything once; ValueError names the field and the value at fault.

        workload: the name of one ("azure-conv"), the path of a workload's .json or of a trace file,
        or an object. A workload draws episode_requests new ones each time; a longer trace plays a
        window of as many consecutive ones, counted from its first; any other trace is played whole.
        load: mean rate as a fraction of what the cluster sustains with the lengths of the whole source;
        rate_per_s: in requests/s; neither: as recorded. arrivals: a workload's process ("poisson" by
        default, "fitted", "gamma:cv=3"); a trace has its own. tier_mix: draw tiers from that mix
        (tier_mixes.py) for config.tiers, or from fractions. fixed: every episode of a seed plays the
        trace of its first.
        """
        self.source = find_source(workload)
        self.n_requests = check_count("episode_requests", episode_requests)
        self.is_fixed = check_flag("fixed", fixed)
        check_load_and_rate(self.source, load, rate_per_s)
        if isinstance(self.source, Workload):
            self.arrivals = "poisson" if arrivals is None else arrivals
            choose_process(self.source, self.arrivals, {})
        elif arrivals is not None:
            raise ValueError(f"arrivals = {arrivals!r}; a trace has its own arrivals")
        self.tier_mix, self.tiers = tier_mix, config.tiers
        if tier_mix is not None:
            Trace([], [], []).assign_tiers(tier_mix, 0, self.tiers)
        saturation_per_s = None if load is None else saturation_rate(self.source, config)
        self.rate_per_s = offered_rate(self.source, load, rate_per_s, saturation_per_s)
        self._whole: Trace | None = None
        if isinstance(self.source, Trace):
            self.n_requests = min(self.n_requests, len(self.source))
            check_windows(self.source, self.n_requests, self.rate_per_s)
            if self.n_requests == len(self.source):
                self._whole = self.at_rate(window_at(self.source, 0, self.n_requests))

    def draw(self, sequence: np.random.SeedSequence) -> Trace:
        """Return the trace of the episode with that SeedSequence(seed, spawn_key=(episode,))."""
        if self.is_fixed and sequence.spawn_key:
            first = (*sequence.spawn_key[:-1], 0)
            sequence = np.random.SeedSequence(sequence.entropy, spawn_key=first)
        trace = self.draw_requests(sequence) if self._whole is None else self._whole
        if self.tier_mix is None:
            return trace
        return trace.assign_tiers(self.tier_mix, sequence, self.tiers)

    def draw_requests(self, sequence: np.random.SeedSequence) -> Trace:
        """Return the requests of an episode at the rate asked for, tiers as they are."""
        if isinstance(self.source, Workload):
            drawn = generate(self.source, self.n_requests, self.rate_per_s, sequence, self.arrivals)
        else:
            n_starts = len(self.source) - self.n_requests + 1
            start = int(stream(sequence, "episode window").integers(n_starts))
            drawn = window_at(self.source, start, self.n_requests)
        return self.at_rate(drawn)

    def at_rate(self, trace: Trace) -> Trace:
        """Return a trace with inter-arrivals scaled to the rate asked for, if one was."""
        return trace if self.rate_per_s is None else scale_to_rate(trace, self.rate_per_s)


def find_source(workload: str | Path | Workload | Trace) -> Source:
    """Return what is meant: an object, a workload by name or .json file, or else a trace file.

    ValueError for anything else, with the near match for an unknown name.
    """
    if isinstance(workload, Trace | Workload):
        return workload
    if not isinstance(workload, str | Path):
        raise ValueError(f"workload = {workload!r}; must be a name, a path, a Workload or a Trace")
    is_file = Path(workload).is_file()
    if Path(workload).suffix and not is_file:
        raise ValueError(f"workload = {str(workload)!r}; there is no such file")
    try:
        return find_workload(workload)
    except ValueError as error:
        if is_file and not str(workload).endswith(FILE_ENDING):
            return load_trace(workload)
        raise ValueError(f"{error} or of a trace file") from None


def window_at(trace: Trace, start: int, n: int) -> Trace:
    """Return n consecutive requests from request `start` on; arrivals count from the first."""
    note = f"requests {start:,} .. {start + n - 1:,}"
    return trace.take(slice(start, start + n), float(trace.arrival_s[start]), note)


def check_windows(trace: Trace, n: int, rate_per_s: float | None) -> None:
    """ValueError for an empty trace, or one that shall be scaled and has n requests at one instant."""
    if not n:
        raise ValueError(f"workload = {trace!r}; it has no requests")
    spans_s = trace.arrival_s[n - 1 :] - trace.arrival_s[: len(trace) - n + 1]
    if rate_per_s is not None and spans_s.min() <= 0.0:
        raise ValueError(
            f"episode_requests = {n}; as many of {trace.name or 'the trace'} arrive at one instant, which "
            "has no rate to scale"
        )


def check_count(field: str, value: Any) -> int:
    """Return a number of requests; ValueError unless it is a whole number >= 2."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < LEAST_REQUESTS:
        raise ValueError(f"{field} = {value!r}; must be a whole number >= {LEAST_REQUESTS}")
    return int(value)


def check_flag(field: str, value: Any) -> bool:
    """Return a flag; ValueError for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{field} = {value!r}; must be True or False")
    return bool(value)
