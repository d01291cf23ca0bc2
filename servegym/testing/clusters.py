"""Small random clusters around one policy: what check_policy plays.

Each case draws an engine, tight or ample KV, an order, stale metrics and several routers, push or pull, crashes and
other faults, scaling, migration, impatient clients and a horizon, all from its seed. The policy takes its own
decision; the others are taken by baselines, some by nobody.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.policy import Policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Labels, Trace

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
DISPATCH = ("least-requests", "power-of-two", "random", "n-tier")
FORESEEING = ("block", "marginal")  # dispatch policies that ask for remaining lengths
PROFILES = ("a100_sxm/Llama-3.1-8B/tp1", "a30/Llama-2-7B/tp1")  # the second is slower
N_TIERS, N_TENANTS = 3, 3
LONGEST_S = 0.02  # mean time between arrivals, at most
Options = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One cluster, its trace and the policy in it."""

    policy: Policy
    seed: int
    trace: Trace
    options: Options  # of ClusterConfig
    dispatch: str
    params: dict[str, float]  # of the policy that is tested
    horizon_s: float | None

    def simulation(self, **changes: Any) -> Simulation:
        """Return the case before its first event; changes are options of ClusterConfig."""
        options = {**self.options, **changes}
        is_dispatch = self.policy.kind == "dispatch"
        if not is_dispatch:
            options[f"{DECISIONS[self.policy.kind]}_params"] = self.params
        return Simulation(
            self.trace,
            ClusterConfig(**options),
            self.policy if is_dispatch else find_policy("dispatch", self.dispatch),
            dispatch_params=self.params if is_dispatch else None,
            seed=self.seed,
            horizon_s=self.horizon_s,
        )

    def text(self) -> str:
        """Return what makes the case again, and its settings."""
        policy = f"find_policy({self.policy.kind!r}, {self.policy.name!r})"
        given = f", params={self.params}" if self.params else ""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return (
            f"servegym.testing.random_case({policy}, {self.seed}{given}).simulation(): "
            f"dispatch {self.dispatch}, horizon_s={self.horizon_s}, {settings}"
        )


def random_case(policy: Policy, seed: int, params: dict[str, float] | None = None) -> Case:
    """Return the case of that seed around the policy, with parameters of it if given."""
    rng = np.random.default_rng([seed, 2026])
    trace = _random_trace(rng)
    options = _random_cluster(rng, trace, seed)
    span_s = float(trace.arrival_s[-1]) + 1.0
    for part in (_gateway, _stale_metrics, _faults, _scaling, _migration, _clients):
        drawn = part(rng, options, span_s)
        if rng.random() < 0.4:
            options.update(drawn)
    dispatch = str(rng.choice(DISPATCH))
    horizon_s = float(rng.uniform(0.3, 1.0) * span_s) if rng.random() < 0.2 else None
    if policy.kind == "dispatch":
        dispatch = policy.name
    else:
        options.update(_seat_for(policy, rng, options, span_s))
        options[DECISIONS[policy.kind]] = policy.name
        dispatch = options.pop("dispatch", dispatch)
    return Case(policy, seed, trace, options, dispatch, dict(params or {}), horizon_s)


def _seat_for(policy: Policy, rng: np.random.Generator, options: Options, span_s: float) -> Options:
    """Return what a cluster needs for this kind of policy to be asked at all."""
    if policy.kind in ("estimation", "remaining"):
        return {"dispatch": str(rng.choice(FORESEEING))}
    if policy.kind == "queue":
        return {**_gateway(rng, options, span_s), "max_local_waiting": int(rng.integers(0, 2))}
    if policy.kind == "migration":
        return {"instances": max(2, options["instances"]), **_migration(rng, options, span_s)}
    if policy.kind == "scaling":
        return _scaling(rng, options, span_s)
    return {}


def _random_trace(rng: np.random.Generator) -> Trace:
    """Return 20 to 90 requests in bursts, of three tiers, tenants and categories."""
    n = int(rng.integers(20, 90))
    arrival_s = np.cumsum(rng.exponential(rng.uniform(0.002, LONGEST_S), n))
    if rng.random() < 0.5:
        arrival_s = np.floor(arrival_s * 20) / 20  # many at one instant
    return Trace(
        arrival_s,
        np.rint(rng.lognormal(4.5, 1.0, n)).clip(1, 1000).astype(np.int32),
        np.rint(rng.lognormal(3.0, 1.0, n)).clip(1, 200).astype(np.int32),
        tier=rng.integers(0, N_TIERS, n).astype(np.int16),
        tenant=Labels(("a", "b", "c"), rng.integers(0, N_TENANTS, n).astype(np.int16)),
        category=Labels(("chat", "code"), rng.integers(0, 2, n).astype(np.int16)),
    )


def _random_cluster(rng: np.random.Generator, trace: Trace, seed: int) -> Options:
    """Return the fleet: engine by turns, some of two kinds, KV for .8 (somebody never fits) to 30 of the largest."""
    largest = -(-int((trace.prompt_tokens + trace.output_tokens).max()) // 16)
    instances = int(rng.integers(1, 6))
    is_mixed = instances > 1 and rng.random() < 0.3
    return {
        "instances": instances,
        "profile": PROFILES if is_mixed else PROFILES[0],
        "engine": ENGINES[seed % len(ENGINES)],
        "kv_blocks": int(largest * rng.choice([0.8, 1.3, 2.0, 5.0, 30.0])),
        "max_num_seqs": int(rng.choice([2, 6, 64])),
        "max_num_batched_tokens": int(rng.choice([2048, 4096])),
        "batch_size": int(rng.integers(1, 8)),
        "order": str(rng.choice(["fcfs", "fcfs", "priority", "sjf"])),
        "tiers": N_TIERS,
    }


# Parts: all draw, so that one's presence does not change another.


def _gateway(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    return {
        "max_local_waiting": int(rng.choice([0, 0, 1, 3])),
        "queue_by": str(rng.choice(["none", "tier", "tier", "tenant"])),
        "hold_timer_s": float(rng.choice([0.02, 0.1])),
    }


def _stale_metrics(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    return {
        "metrics_interval_s": float(rng.choice([0.02, 0.1, 1.0])),
        "routers": int(rng.integers(1, 4)),
    }


def _faults(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    faults = [
        {
            "kind": kind,
            "instance": int(rng.integers(0, options["instances"])),
            "at_s": round(float(rng.uniform(0, span_s)), 3),
            "duration_s": round(float(rng.uniform(0.05, span_s)), 3),
        }
        for kind in ("crash", "crash", "slow", "metrics", "link")
    ]
    return {"faults": tuple(faults), "on_failure": str(rng.choice(["retry", "fail"]))}


def _scaling(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    return {
        "scaling": "freeness",
        "scaling_params": {"low": 20.0, "high": 60.0, "cooldown_s": 0.1},  # blocks a request
        "max_instances": options["instances"] + int(rng.integers(1, 4)),
        "min_instances": int(rng.integers(1, options["instances"] + 1)),
        "scaling_interval_s": float(rng.choice([0.05, 0.3])),
        "startup_delay_s": float(rng.choice([0.0, 0.1])),
    }


def _migration(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    return {
        "migration": str(rng.choice(["n-tier", "llumnix"])),
        "rebalance_interval_s": float(rng.choice([0.02, 0.1])),
    }


def _clients(rng: np.random.Generator, options: Options, span_s: float) -> Options:
    return {
        "timeout_s": float(rng.choice([0.1, 0.5, 2.0])),
        "client_retries": int(rng.integers(0, 3)),
        "retry_backoff_s": 0.1,
    }
