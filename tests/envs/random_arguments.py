"""Random arguments for environments of every kind: whatever a config can hold, small, and JSON-able.

Each part (gateway, stale metrics, faults, ...) is drawn from the seed and put in at random, so that a few dozen seeds
see most pairs of them.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from servegym.envs.options import FEATURES, OF_TICKS, TERMS
from servegym.envs.registration import env_ids

Arguments = dict[str, Any]
IDS = env_ids()
KINDS = {env_id: env_id.split("/")[1].removesuffix("-v0").lower() for env_id in IDS}
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
# Lengths of each are such that the KV below is tight, and that some requests fit nowhere.
WORKLOADS = ("azure-conv", "burstgpt", "driftsched-tokens", "powerlaw-256-256", "zipf-64-512")
SYSTEMS = ("least-requests", "random", "power-of-two", "round-robin", "n-tier", "marginal")
PROFILES = ["a100_sxm/Llama-3.1-8B/tp1", "h100_sxm/Llama-3.1-8B/tp1"]
SPAN_S = 8.0  # most faults begin in it


@dataclass(frozen=True)
class Maker:
    """A function that makes an environment: plain data, so that it can be called in another process."""

    env_id: str
    arguments: Arguments

    def __call__(self) -> gymnasium.Env:
        import servegym  # noqa: F401  (registers the ids in a fresh process)

        return gymnasium.make(self.env_id, **self.arguments)


def plain_arguments(env_id: str, **more: Any) -> Arguments:
    """Return the fewest arguments that make an environment, with a short episode."""
    given: Arguments = {"episode_requests": 40, "rate_per_s": 8.0}
    if KINDS[env_id] == "headroom":
        given["system"] = "n-tier"
    return given | more


def random_arguments(env_id: str, seed: int) -> Arguments:
    """Return the arguments of that seed for an environment."""
    kind, rng = KINDS[env_id], np.random.default_rng([seed, IDS.index(env_id)])
    cluster = _cluster(rng, seed)
    for part in (_gateway, _stale_metrics, _faults, _clients, _fleet, _admission, _moves, _scales):
        drawn = part(rng, cluster)
        if rng.random() < 0.35:
            cluster |= drawn
    system = str(rng.choice(SYSTEMS))
    if kind == "headroom":
        system = "n-tier"
    if cluster["engine"] == "static" and system == "marginal":
        system = "least-requests"
    given: Arguments = {
        "episode_requests": int(rng.choice([2, 12, 50, 90])),
        "workload": str(rng.choice(WORKLOADS)),
        "rate_per_s": float(rng.choice([1.0, 6.0, 40.0])),
        "cluster": cluster,
        "system": system,
        "reward": str(rng.choice(TERMS)),
    }
    n_tiers = cluster["tiers"]
    extras: Arguments = {
        "tier_mix": (np.full(n_tiers, 1.0) / n_tiers).tolist(),
        "horizon_s": float(rng.choice([0.5, 2.0, 7.0])),
        "slo": {"ttft_s": float(rng.choice([0.05, 0.5])), "tpot_s": float(rng.choice([0.02, 0.1]))},
        "features": _features(rng),
        "oracle": True,
        "fixed": True,
        str(rng.choice(["flatten", "mask_in_observation"])): True,
    }
    for name, value in extras.items():
        if rng.random() < (0.8 if name == "tier_mix" else 0.35):
            given[name] = value
    if kind in OF_TICKS:
        given["control_interval_s"] = float(rng.choice([0.05, 0.3, 1.0]))
    if kind == "migration":
        given["moves_per_tick"] = int(rng.choice([1, 2, 5]))
        given["rule"] = str(rng.choice(["n-tier", "llumnix"]))
    if kind == "dispatch" and rng.random() < 0.5:
        given["fallback"] = str(rng.choice(["random", "power-of-two", "least-kv"]))
    if kind == "ordering" and rng.random() < 0.5:
        given["fallback"] = "strict-priority"
    return given


def _cluster(rng: np.random.Generator, seed: int) -> Arguments:
    return {
        "instances": int(rng.integers(1, 6)),
        "engine": ENGINES[seed % len(ENGINES)],
        "kv_blocks": int(rng.choice([60, 150, 400, 3000])),
        "max_num_seqs": int(rng.choice([2, 6, 64])),
        "max_num_batched_tokens": int(rng.choice([512, 2048, 4096])),
        "batch_size": int(rng.integers(1, 8)),
        "bypass_blocked": bool(seed % len(ENGINES) != 3 and rng.random() < 0.2),
        "order": str(rng.choice(["fcfs", "fcfs", "priority", "sjf", "aging"])),
        "tiers": int(rng.choice([1, 3, 8])),
    }


def _gateway(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {
        "max_local_waiting": int(rng.choice([0, 0, 1, 3])),
        "queue_by": str(rng.choice(["none", "tier", "tenant"])),
        "hold_timer_s": float(rng.choice([0.02, 0.1])),
        "queue": str(rng.choice(["weighted", "strict-priority", "virtual-token-counter"])),
    }


def _stale_metrics(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {
        "metrics_interval_s": float(rng.choice([0.02, 0.1, 1.0])),
        "routers": int(rng.integers(1, 4)),
        "snapshot_interval_s": float(rng.choice([0.0, 0.2])),
    }


def _faults(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    faults = [
        {
            "kind": kind,
            "instance": int(rng.integers(0, cluster["instances"])),
            "at_s": float(rng.choice([0.0, round(rng.uniform(0, SPAN_S), 3)])),
            "duration_s": round(float(rng.uniform(0.05, SPAN_S)), 3),
        }
        for kind in ("crash", "crash", "slow", "metrics", "link")
    ]
    return {"faults": faults, "on_failure": str(rng.choice(["retry", "fail"]))}


def _clients(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {
        "timeout_s": float(rng.choice([0.004, 0.3, 2.0, 10.0])),  # .004: less than an iteration
        "client_retries": int(rng.integers(0, 3)),
        "retry_backoff_s": float(rng.choice([0.01, 0.5])),
        "reject_penalty_s": float(rng.choice([0.0, 3.0])),
    }


def _fleet(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {"profile": PROFILES[: min(2, cluster["instances"])]}


def _admission(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {"admission": str(rng.choice(["queue-cap", "slo-shed"]))}


def _moves(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {
        "migration": str(rng.choice(["n-tier", "llumnix"])),
        "rebalance_interval_s": float(rng.choice([0.05, 0.5])),
    }


def _scales(rng: np.random.Generator, cluster: Arguments) -> Arguments:
    return {
        "scaling": "freeness",
        "scaling_params": {"low": 20.0, "high": 200.0, "cooldown_s": 0.1},
        "max_instances": cluster["instances"] + int(rng.integers(1, 4)),
        "min_instances": int(rng.integers(1, cluster["instances"] + 1)),
        "scaling_interval_s": float(rng.choice([0.05, 0.3])),
        "startup_delay_s": float(rng.choice([0.0, 0.1])),
    }


def _features(rng: np.random.Generator) -> dict[str, list[str]]:
    """Return some names of every part; parts may be empty, but not all."""
    chosen = {}
    for part, table in FEATURES.items():
        names = [feature.name for feature in table]
        n = int(rng.integers(0, len(names) + 1))
        chosen[part] = [str(name) for name in rng.permutation(names)[:n]]
    chosen["cluster"] = chosen["cluster"] or ["gateway"]
    return chosen
