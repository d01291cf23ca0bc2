"""Serve's scenarios: clusters on which tiers meet at the gateway, and the cases that a serve policy is trained on.

Four tiers in the enterprise mix, four instances, pull: requests wait at the gateway for room. Where nothing waits, all
policies are one; so beside the calm cases there are bursts and more than the cluster sustains.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from servegym.agents.scenarios import TRAINING_SEEDS, VALIDATION_SEEDS
from servegym.baselines.saturation import saturation_rate
from servegym.experiments.blocks import draws_of_workload
from servegym.experiments.sources import at_rate, with_tiers
from servegym.simulator.config import SCENARIOS, ClusterConfig
from servegym.traces import Trace, Workload
from servegym.traces import workload as find_workload
from servegym.traces.streams import stream

INSTANCES, TIERS, TIER_MIX = 4, 4, "enterprise"
CLUSTERS: dict[str, dict[str, Any]] = {
    "tight": SCENARIOS["tight"],  # little KV
    "few-seats": {"max_num_seqs": 32},  # the default of Serve-v0
}
BURSTY = "gamma:cv=3"


@dataclass(frozen=True)
class ServeCase:
    """One run: a workload's trace with tiers, on a cluster of CLUSTERS. load: of what the cluster sustains."""

    workload: str
    cluster: str
    load: float
    arrivals: str
    seed: int
    requests: int

    def config(self) -> ClusterConfig:
        """Return the cluster; its queue policy is strict priority, which a system replaces."""
        return ClusterConfig(
            instances=INSTANCES,
            tiers=TIERS,
            queue_by="tier",
            max_local_waiting=0,
            queue="strict-priority",
            **CLUSTERS[self.cluster],
        )

    def trace(self) -> Trace:
        """Return the trace that `compare` plays with this seed."""
        model = _workload(self.workload)
        drawn = draws_of_workload(model, self.requests, 1, self.seed, self.arrivals)
        drawn = with_tiers(drawn, TIER_MIX, TIERS)
        saturation_per_s = saturation_rate(model, self.config())
        return at_rate(drawn, model, self.load, None, saturation_per_s)[self.seed]


@lru_cache(maxsize=8)
def _workload(name: str) -> Workload:
    return find_workload(name)


# Workload, cluster, least and largest load, arrivals, how many times the requests: a generation plays one case of each.
# Bursts of minutes need longer cases.
TRAINED = (
    ("azure-conv", "tight", 0.95, 0.95, "poisson", 1),
    ("azure-conv", "tight", 1.0, 1.05, "poisson", 1),
    ("sharegpt", "tight", 0.98, 1.05, "poisson", 1),
    ("azure-conv", "tight", 0.95, 0.95, "fitted", 2),
    ("azure-conv", "tight", 0.95, 0.95, BURSTY, 1),
    ("sharegpt", "tight", 0.95, 0.95, BURSTY, 2),
    ("azure-conv", "few-seats", 1.0, 1.08, "poisson", 1),
    ("sharegpt", "few-seats", 1.0, 1.08, "poisson", 1),
)
N_VALIDATION = 3  # cases of each that the best of the last means is chosen on


def training_cases(seed: int, generation: int, requests: int) -> list[ServeCase]:
    """Return the cases of a generation."""
    rng = stream(seed, f"serve cases of generation {generation}")
    return [
        ServeCase(
            workload,
            cluster,
            low + (high - low) * float(rng.random()),
            arrivals,
            int(rng.integers(TRAINING_SEEDS.start, TRAINING_SEEDS.stop)),
            times * requests,
        )
        for workload, cluster, low, high, arrivals, times in TRAINED
    ]


def validation_cases(requests: int) -> list[ServeCase]:
    """Return the cases that a policy is chosen by, at the middle of the loads, the same for every training seed."""
    return [
        ServeCase(workload, cluster, (low + high) / 2, arrivals, seed, times * requests)
        for seed in VALIDATION_SEEDS[:N_VALIDATION]
        for workload, cluster, low, high, arrivals, times in TRAINED
    ]
