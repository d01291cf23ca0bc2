"""Random cases of whole clusters for the comparison of the kernels with the reference: gateway, moves, faults, all.

A case has a kind, which says what it is mainly about. Its policies are those of twin_policies.py, made for tests; of
the kind headroom the ones that ship (random_headroom_cases.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from random_cases import (
    GRID_PROFILES,
    REAL_PROFILES,
    _random_arrivals,
    _random_budget,
    _random_instants,
    _random_lengths,
    _spec,
)
from random_headroom_cases import SHIPPED, shipped
from reference.cluster import ReferenceCluster
from reference.model import Request
from reference.options import Fault as ReferenceFault
from reference.options import Options
from twin_policies import REFERENCE_POLICIES

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.profiles import profiles
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace
from servegym.traces.labels import Labels

KINDS = (
    "gateway-push-limit",
    "gateway-pull",
    "observation",
    "migration",
    "timeouts",
    "faults",
    "scaling",
    "everything",
    "headroom",
)
KV_BYTES = 1000  # a token, on the grid profiles


def _movable(name: str) -> str:
    """Register a copy of a profile whose requests can be moved, and return its name."""
    row = profiles()[name]
    if row.kv_bytes_per_token is not None:
        return name
    model = name.split("/")[1]
    values = {**row.__dict__, "model": f"{model}-moves", "kv_bytes_per_token": KV_BYTES}
    moves = type(row)(**values)
    profiles()[moves.name] = moves
    return moves.name


@dataclass(frozen=True)
class ClusterCase:
    """One random case."""

    name: str  # kind and seed
    config: ClusterConfig
    trace: Trace
    dispatch: str
    reads_ps: tuple[int, ...]
    horizon_ps: int | None
    dispatch_params: dict[str, float] = field(default_factory=dict)


def random_cluster_case(kind: str, seed: int) -> ClusterCase:
    """Return the case of that kind and seed."""
    rng = np.random.default_rng([seed, len(kind), ord(kind[0]), ord(kind[-1])])
    is_grid = rng.random() < 0.6
    engine = str(rng.choice(["vllm-v1", "vllm-v1", "vllm-v0", "sarathi", "static"]))
    if kind in ("migration", "everything", "headroom") and engine == "static":
        engine = "vllm-v1"  # a policy would see its batch as decoders, the reference would not
    n = int(rng.integers(3, 60))
    prompt, output = _random_lengths(rng, n)
    size = int(rng.choice([1, 4, 16, 16]))
    need = -(-(prompt + output - 1) // size)
    kv_blocks = int(need.max() * rng.choice([1.05, 1.3, 2.0, 4.0, 30.0])) + int(rng.integers(0, 3))
    if rng.random() < 0.1:  # somebody does not fit
        kv_blocks = max(1, int(need.max() * rng.uniform(0.6, 1.0)))
    seats = int(rng.choice([1, 2, 3, 6, 64]))
    instances = int(rng.integers(1, 5))
    if kind in ("migration", "headroom"):
        instances = max(2, instances)
    pool = [_movable(name) for name in (GRID_PROFILES if is_grid else REAL_PROFILES)]
    is_mixed = instances > 1 and rng.random() < 0.3
    orders = ["fcfs", "fcfs", "priority", "sjf", "test-aging", "test-shuffle"]
    config: dict[str, Any] = {
        "instances": instances,
        "profile": tuple(pool[:2]) if is_mixed else str(rng.choice(pool)),
        "engine": engine,
        "max_num_seqs": seats,
        "max_num_batched_tokens": _random_budget(rng, engine, seats, int((prompt + output).max())),
        "kv_blocks": kv_blocks,
        "block_size": size,
        "watermark": None if rng.random() < 0.5 else float(rng.choice([0.0, 0.01, 0.1])),
        "reserve_full_prompt": bool(rng.random() < 0.7),
        "bypass_blocked": bool(rng.random() < 0.2) and engine != "static",
        "batch_size": int(rng.integers(1, 8)),
        "batch_wait_s": float(rng.choice([0.0, 0.003, 0.01])),
        "order": str(rng.choice(orders)),
        "tiers": 4,
        "estimator": "oracle" if rng.random() < 0.5 else "test-learns",
        "calibration": 1.0 if is_grid else float(rng.uniform(0.5, 2.0)),
        "host_overhead_ms": float(rng.choice([0.0, 1.0])) if is_grid else float(rng.uniform(0, 3)),
    }
    arrival_ps = _random_arrivals(rng, n, is_grid)
    span_s = max(0.05, float(arrival_ps[-1]) / 1e12 * 1.5)
    for part in _PARTS[kind]:
        config.update(part(rng, config, span_s))
    dispatch = config.pop("dispatch", "test-signals")
    dispatch_params = config.pop("dispatch_params", {})
    reads = _random_instants(rng, arrival_ps, int(rng.integers(0, 8)), is_grid)
    horizon_ps = None
    if rng.random() < 0.2:
        horizon_ps = int(np.rint(int(arrival_ps[-1] * rng.uniform(0.3, 1.5)) / 1e12 * 1e12))
        reads = [t for t in reads if t <= horizon_ps]
    trace = Trace(
        arrival_s=arrival_ps / 1e12,
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        tier=rng.integers(0, config["tiers"], n).astype(np.int16),
        tenant=Labels(("a", "b", "c"), rng.integers(0, 3, n).astype(np.int16)),
    )
    return ClusterCase(
        f"{kind} {seed}",
        ClusterConfig(**config),
        trace,
        dispatch,
        tuple(reads),
        horizon_ps,
        dispatch_params,
    )


# What the kinds add to the configuration.


def _gateway(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    queues = ["none", "tier", "tenant"]
    return {
        "queue_by": str(rng.choice(queues)),
        "queue": None if rng.random() < 0.4 else str(rng.choice(["test-longest", "test-turns"])),
        "admission": "test-gate" if rng.random() < 0.4 else None,
        "hold_timer_s": float(rng.choice([0.005, 0.02, 0.1])),
        "max_hold_s": float(rng.choice([0.3, 1.0])),
        "dispatch": str(rng.choice(["test-signals", "test-signals", "test-moods"])),
    }


def _push_limit(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return {"max_local_waiting": int(rng.integers(1, 4))}


def _pull(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return {"max_local_waiting": 0}


def _maybe_gateway(
    rng: np.random.Generator, config: dict[str, Any], span_s: float
) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {}
    limit = rng.choice([0, 0, 1, 2])
    return {**_gateway(rng, config, span_s), "max_local_waiting": int(limit)}


def _stale(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return {
        "routers": int(rng.choice([1, 2, 3])),
        "metrics_interval_s": float(rng.choice([0.007, 0.02, 0.1, 1.0])),
    }


def _maybe_stale(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return _stale(rng, config, span_s) if rng.random() < 0.4 else {}


def _moves(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    block_bytes = config["block_size"] * KV_BYTES
    return {
        "migration": "test-shift",
        "rebalance_interval_s": float(rng.choice([0.006, 0.01, 0.05])),
        "migration_stages": int(rng.choice([2, 2, 3, 5])),
        "last_stage_blocks": None if rng.random() < 0.4 else int(rng.choice([1, 2, 4])),
        # a block in so many milliseconds, on the grid
        "link_gb_per_s": float(block_bytes / rng.choice([0.1, 1.0, 1.0, 3.0, 20.0]) * 1e-6),
    }


def _maybe_moves(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return _moves(rng, config, span_s) if rng.random() < 0.7 else {}


def _clients(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    limits = [0.012, 0.05, 0.3, None]
    one = float(rng.choice([0.01, 0.04, 0.2]))
    return {
        "timeout_s": tuple(rng.permutation(np.array(limits))) if rng.random() < 0.5 else one,
        "client_retries": int(rng.choice([0, 1, 3])),
        "retry_backoff_s": float(rng.choice([0.004, 0.02, 0.1])),
    }


def _maybe_clients(
    rng: np.random.Generator, config: dict[str, Any], span_s: float
) -> dict[str, Any]:
    return _clients(rng, config, span_s) if rng.random() < 0.6 else {}


def _faults(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    """Return some faults; those of one kind on one instance do not overlap."""
    faults: list[dict[str, Any]] = []
    n = config.get("max_instances") or config["instances"]
    for _ in range(int(rng.integers(1, 7))):
        fault = {
            "kind": str(rng.choice(["crash", "crash", "slow", "metrics", "link"])),
            "instance": int(rng.integers(0, n)),
            "at_s": round(float(rng.uniform(0, span_s)), 3),
            "duration_s": round(float(rng.uniform(0.002, span_s / 2)), 3),
            "factor": float(rng.choice([0.5, 2.0, 3.0, 1.7])),
        }
        if not any(_overlap(fault, other) for other in faults):
            faults.append(fault)
    return {"faults": tuple(faults), "on_failure": str(rng.choice(["retry", "retry", "fail"]))}


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    is_same = a["kind"] == b["kind"] and a["instance"] == b["instance"]
    ends = [fault["at_s"] + fault["duration_s"] for fault in (a, b)]
    return is_same and a["at_s"] <= ends[1] and b["at_s"] <= ends[0]


def _maybe_faults(
    rng: np.random.Generator, config: dict[str, Any], span_s: float
) -> dict[str, Any]:
    return _faults(rng, config, span_s) if rng.random() < 0.6 else {}


def _scaling(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    return {
        "scaling": "test-size",
        "max_instances": config["instances"] + int(rng.integers(0, 3)),
        "min_instances": int(rng.integers(1, config["instances"] + 1)),
        "scaling_interval_s": float(rng.choice([0.005, 0.02, 0.1])),
        "startup_delay_s": float(rng.choice([0.0, 0.003, 0.02])),
    }


def _maybe_scaling(
    rng: np.random.Generator, config: dict[str, Any], span_s: float
) -> dict[str, Any]:
    return _scaling(rng, config, span_s) if rng.random() < 0.5 else {}


_PARTS: dict[str, tuple[Callable[..., dict[str, Any]], ...]] = {
    "gateway-push-limit": (_gateway, _push_limit, _maybe_stale),
    "gateway-pull": (_gateway, _pull, _maybe_stale),
    "observation": (_stale,),
    "migration": (_moves, _maybe_gateway, _maybe_stale),
    "timeouts": (_clients, _maybe_gateway),
    "faults": (_faults, _maybe_gateway, _maybe_stale),
    "scaling": (_scaling, _maybe_gateway, _maybe_stale),
    "everything": (_gateway, _maybe_gateway, _maybe_stale, _scaling, _moves, _clients, _faults),
    "headroom": (_maybe_gateway, _maybe_stale, _maybe_scaling, _moves, _maybe_faults, shipped),
}


# The two simulators.


def reference_of(case: ClusterCase) -> ReferenceCluster:
    """Return the reference cluster before its first event."""
    config = case.config
    rows = config.fleet_profiles
    specs = [_spec(config, rows[i % len(rows)]) for i in range(config.most_instances)]
    specs = [
        type(spec)(
            **{**spec.__dict__, "kv_bytes_per_token": rows[i % len(rows)].kv_bytes_per_token}
        )
        for i, spec in enumerate(specs)
    ]
    policies = {
        role: None if name is None else REFERENCE_POLICIES[name]()
        for role, name in [
            ("admission", config.admission),
            ("queue_policy", config.queue),
            ("estimator", None if config.estimator == "oracle" else config.estimator),
        ]
    }
    policies |= {
        "migration": _policy(config, "migration", config.migration, config.migration_params),
        "scaling": _policy(config, "scaling", config.scaling, config.scaling_params),
    }
    return ReferenceCluster(
        specs,
        _requests(case),
        _policy(config, "dispatch", case.dispatch, case.dispatch_params),
        horizon_ps=case.horizon_ps,
        metrics_interval_ps=_ps(config.metrics_interval_s),
        routers=config.routers,
        options=_options(config),
        **policies,
    )


def _policy(config: ClusterConfig, kind: str, name: str | None, params: dict[str, float]) -> Any:
    """Return the twin of a policy of a kind that has shipped ones."""
    if name is None:
        return None
    if (kind, name) in SHIPPED:
        return SHIPPED[kind, name](config.tiers, **params)
    return REFERENCE_POLICIES[name]()


def _requests(case: ClusterCase) -> list[Request]:
    trace = case.trace
    arrival_ps = np.rint(trace.arrival_s * 1e12).astype(np.int64)
    assert trace.tenant is not None
    return [
        Request(
            index=r,
            arrival_ps=int(arrival_ps[r]),
            prompt_tokens=int(trace.prompt_tokens[r]),
            output_tokens=int(trace.output_tokens[r]),
            predicted_tokens=int(trace.output_tokens[r]),
            tier=int(trace.tier[r]),
            tenant=int(trace.tenant.codes[r]),
        )
        for r in range(len(trace))
    ]


def _options(config: ClusterConfig) -> Options:
    timeouts = tuple(None if t is None else _ps(t) for t in config.timeouts_s())
    faults = tuple(
        ReferenceFault(
            kind=fault.kind,
            instance=fault.instance,
            at_ps=_ps(fault.at_s),
            duration_ps=_ps(fault.duration_s),
            factor=fault.factor,
        )
        for fault in config.faults
    )
    return Options(
        queue_by=config.queue_by,
        max_local_waiting=config.max_local_waiting,
        hold_timer_ps=_ps(config.hold_timer_s),
        max_hold_ps=_ps(config.max_hold_s),
        rebalance_interval_ps=_ps(config.rebalance_interval_s),
        migration_stages=config.migration_stages,
        last_stage_blocks=config.last_stage_blocks,
        link_bytes_per_s=config.link_gb_per_s * 1e9,
        scaling_interval_ps=_ps(config.scaling_interval_s),
        startup_delay_ps=_ps(config.startup_delay_s),
        instances=config.instances,
        min_instances=config.min_instances,
        faults=faults,
        on_failure=config.on_failure,
        timeout_ps=timeouts,
        client_retries=config.client_retries,
        retry_backoff_ps=_ps(config.retry_backoff_s),
        snapshot_interval_ps=_ps(config.snapshot_interval_s),
    )


def _ps(seconds: float) -> int:
    return round(seconds * 1e12)


def simulation_of(case: ClusterCase) -> Simulation:
    """Return the simulation before its first event."""
    horizon_s = None if case.horizon_ps is None else case.horizon_ps / 1e12
    dispatch = find_policy("dispatch", case.dispatch)
    return Simulation(
        case.trace,
        case.config,
        dispatch,
        dispatch_params=case.dispatch_params,
        horizon_s=horizon_s,
    )
