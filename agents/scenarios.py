"""Scenarios: the cases that schedulers are trained, selected and judged on; seeds of the three never overlap.

A case is one trace on one cluster at one load, with what is known of output lengths. A training run draws new cases
for every generation, in equal shares over fleet sizes, workloads, knowledge and scenarios; loads are stratified over a
range, over all cases of a generation together, so that each sees calm and congestion. Left out: faults, tiers, stale
metrics, mixed hardware.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, product
from typing import Any

import numpy as np

from servegym.baselines.saturation import saturation_rate
from servegym.experiments.blocks import draws_of_workload
from servegym.experiments.sources import at_rate
from servegym.simulator.config import SCENARIOS, ClusterConfig
from servegym.traces import Trace, Workload
from servegym.traces import workload as find_workload
from servegym.traces.names import near_match
from servegym.traces.streams import stream

# Seeds of traces. Studies and `servegym compare` count up from 0: no training uses those.
HELD_OUT_SEEDS = range(10_000)
VALIDATION_SEEDS = range(10_000, 20_000)
TRAINING_SEEDS = range(1_000_000, 2**31)

# What is known of output lengths: a prediction, clip(1 + N(0, .5), .1, 5) times the truth; the workload's mean; what
# completions teach; the truth.
LENGTHS: dict[str, dict[str, Any]] = {
    "predicted": {"estimator": "noisy", "estimator_params": {"error": 0.5}},
    "constant": {"estimator": "constant"},
    "learned": {"estimator": "residual", "remaining": "residual"},
    "oracle": {"estimator": "oracle"},
}


@dataclass(frozen=True)
class Case:
    """One run: a workload's trace on a cluster. load: of what the cluster sustains; lengths: of LENGTHS.

    arrivals: a process by name ("poisson"), or "fitted", the workload's own.
    """

    workload: str
    scenario: str
    instances: int
    load: float
    lengths: str
    seed: int
    requests: int
    arrivals: str = "poisson"

    def config(self) -> ClusterConfig:
        """Return the cluster."""
        return ClusterConfig(
            instances=self.instances, **SCENARIOS[self.scenario], **LENGTHS[self.lengths]
        )

    def trace(self) -> Trace:
        """Return the trace that `compare` plays with this seed: arrivals scaled to the load."""
        model = _workload(self.workload)
        drawn = draws_of_workload(model, self.requests, 1, self.seed, self.arrivals)
        saturation_per_s = saturation_rate(model, self.config())
        return at_rate(drawn, model, self.load, None, saturation_per_s)[self.seed]


@lru_cache(maxsize=8)
def _workload(name: str) -> Workload:
    return find_workload(name)


@dataclass(frozen=True)
class Mix:
    """What cases are drawn from.

    loads: least and largest, of cases with Poisson arrivals. scenarios: by name; each has as many cases of a generation
    as the others, give or take one. burst_requests: of cases in which a workload arrives as recorded, if it has such
    arrivals: short, from an empty cluster, and at burst_loads, as a piece of a busy day; 0 for no such cases.

    ValueError for a name that there is not, or a number out of range.
    """

    instances: tuple[int, ...] = (4, 6, 16)
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    lengths: tuple[str, ...] = ("predicted", "constant")
    loads: tuple[float, float] = (0.86, 1.08)
    scenarios: tuple[str, ...] = ("tight", "default")
    requests: int = 10_000
    burst_requests: int = 2_000
    burst_loads: tuple[float, float] = (0.8, 1.25)

    def __post_init__(self) -> None:
        for name in self.lengths:
            if name not in LENGTHS:
                raise ValueError(f"unknown lengths {name!r}; {near_match(name, LENGTHS)}")
        for name in self.workloads:
            _workload(name)
        for name in ("instances", "workloads", "lengths", "scenarios"):
            values = getattr(self, name)
            if len(set(values)) < len(values) or not values:
                raise ValueError(f"{name} = {list(values)}; must name some, each once")
        if min(self.instances) < 1:
            raise ValueError(f"instances = {list(self.instances)}; must be numbers >= 1")
        for name in ("loads", "burst_loads"):
            loads = getattr(self, name)
            if len(loads) != 2 or not 0 < loads[0] <= loads[1] < np.inf:
                raise ValueError(f"{name} = {list(loads)}; must be the least and the largest, > 0")
        for name in self.scenarios:
            if name not in SCENARIOS:
                raise ValueError(f"unknown scenario {name!r}; {near_match(name, SCENARIOS)}")
        if self.burst_requests < 0 or self.burst_requests == 1:
            raise ValueError(f"burst_requests = {self.burst_requests}; must be 0 or >= 2")
        if self.requests < 2:
            raise ValueError(f"requests = {self.requests}; must be >= 2")

    def training_cases(self, seed: int, generation: int) -> list[Case]:
        """Return the cases of a generation: one of every fleet size, workload and knowledge of lengths, and bursts."""
        rng = stream(seed, f"training cases of generation {generation}")
        corners = list(self._corners(self.instances))
        is_recorded = [_workload(workload).arrivals is not None for _, workload, _ in corners]
        recorded = list(compress(corners, is_recorded)) if self.burst_requests else []
        steady = list(self._drawn(corners, self.loads, self.requests, "poisson", rng))
        return steady + list(
            self._drawn(recorded, self.burst_loads, self.burst_requests, "fitted", rng)
        )

    def _drawn(
        self,
        corners: Sequence[tuple[int, str, str]],
        loads: tuple[float, float],
        requests: int,
        arrivals: str,
        rng: np.random.Generator,
    ) -> Iterator[Case]:
        """Yield a case a corner, scenarios in equal numbers, loads stratified, seeds new."""
        (low, high), n, k = loads, len(corners), len(self.scenarios)
        strata = (rng.permutation(n) + rng.random(n)) / n
        order = rng.permutation(n)
        first = rng.integers(k) if n % k else 0  # whose turn comes once more than that of others
        scenarios = [self.scenarios[turn] for turn in (order + first) % k]
        for corner, stratum, scenario in zip(corners, strata, scenarios, strict=True):
            instances, workload, lengths = corner
            load = low + (high - low) * float(stratum)
            seed = int(rng.integers(TRAINING_SEEDS.start, TRAINING_SEEDS.stop))
            yield Case(workload, scenario, instances, load, lengths, seed, requests, arrivals)

    def validation_cases(
        self,
        loads: Sequence[float] = (0.9, 0.97, 1.03),
        instances: Sequence[int] | None = None,
    ) -> list[Case]:
        """Return the cases that a policy is chosen by, in every scenario, the same for every training seed.

        instances: other fleet sizes; one of more than all trained on plays as many requests an instance.
        """
        sizes, most = instances or self.instances, max(self.instances)
        corners = product(self.scenarios, loads, self._corners(sizes))
        return [
            Case(
                workload,
                scenario,
                n,
                load,
                lengths,
                seed,
                self.requests * max(1, n // most),
            )
            for seed, (scenario, load, (n, workload, lengths)) in enumerate(
                corners, VALIDATION_SEEDS.start
            )
        ]

    def untrained_instances(self) -> tuple[int, int]:
        """Return two fleet sizes that were not trained on: four times the largest, and twice the smallest.

        If twice the smallest was, twice that, and so on: of 2 and 4 it is 8 and 16.
        """
        small = 2 * min(self.instances)
        while small in self.instances:
            small *= 2
        return small, 4 * max(self.instances)

    def _corners(self, instances: Sequence[int]) -> Iterator[tuple[int, str, str]]:
        return product(instances, self.workloads, self.lengths)
