"""Random cases for the comparison of the kernels with the reference, and how each of the two runs one.

A case is a config, a trace, a dispatch rule, and instants at which everything is read. Profiles on a grid of whole
milliseconds make arrivals, reads and iteration ends fall on the same instants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from reference.cluster import ReferenceCluster
from reference.engine import Observation
from reference.model import InstanceSpec, IterationTime, Request

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, find_policy, ordering_policy
from servegym.simulator.profiles import Profile, profiles
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import arrival_s, n_instances, prompt_tokens, tier
from servegym.traces import Trace

PS_PER_MS = 10**9
REAL_PROFILES = ("a100_sxm/Llama-2-7B/tp1", "rtx_4090/Llama-3.1-8B/tp1", "a30/Qwen2-7B/tp1")
GRID_PROFILES = ("test/grid/tp1", "test/grid-kv/tp1")
LOG_FIELDS = ("admitted_ps", "first_token_ps", "finish_ps", "preemptions", "recomputed_tokens")


def _grid_profile(model: str, c_kv_ms: float) -> Profile:
    """Return a profile whose iterations last whole milliseconds."""
    return Profile(
        "test", model, 1, 8, 1.0, 1.0, 1.0, 2.0, 0.0, c_kv_ms, 1.0, 0.0,
        None, None, None, 1000, 1.0, "made for tests", "MIT", "",
    )  # fmt: skip


profiles().update({p.name: p for p in (_grid_profile("grid", 0.0), _grid_profile("grid-kv", 1.0))})


@ordering_policy(name="test-aging", source="test: urgency grows with waiting", time_dependent=True)
def play_aging(request, now_ps, params):
    """Return the tier minus the seconds waited."""
    return tier(request) - (now_ps / 1e12 - arrival_s(request)) * 3.0


@ordering_policy(
    name="test-shuffle", source="test: an order that turns round all the time", time_dependent=True
)
def play_shuffle(request, now_ps, params):
    """Return a number without rhyme or reason."""
    return float((prompt_tokens(request) * 7919 + now_ps // 3_000_000_000) % 13)


@dispatch_policy(name="test-by-index", source="test: request i to instance i mod M")
def play_by_index(cluster, request, params, memory, rng):
    """Return the request's index modulo the fleet's size."""
    return request.index % n_instances(cluster)


REFERENCE_KEYS: dict[str, Callable[[Request, int], float]] = {
    "test-aging": lambda r, now: r.tier - (now / 1e12 - r.arrival_ps / 1e12) * 3.0,
    "test-shuffle": lambda r, now: float((r.prompt_tokens * 7919 + now // 3_000_000_000) % 13),
    "sjf": lambda r, now: float(r.prompt_tokens + r.predicted_tokens),
}


class Least:
    """The reference's own least-loaded dispatch, with rotating ties."""

    def __init__(self, load: Callable[[Observation], int]) -> None:
        self.load = load
        self.start = 0

    def __call__(self, cluster: ReferenceCluster, request: Request) -> int:
        n = len(cluster.engines)
        order = [(self.start + k) % n for k in range(n)]
        self.start = (self.start + 1) % n
        fitting = [i for i in order if cluster.fits(request, i)]
        return min(fitting, key=lambda i: self.load(cluster.observe(request, i)))


REFERENCE_DISPATCH: dict[str, Callable[[], Any]] = {
    "test-by-index": lambda: lambda cluster, request: request.index % len(cluster.engines),
    "least-requests": lambda: Least(lambda seen: seen.n_waiting + seen.n_running),
    "least-kv": lambda: Least(lambda seen: seen.used_blocks + seen.waiting_blocks),
    "least-tokens": lambda: Least(lambda seen: seen.held_tokens),
}


@dataclass(frozen=True)
class Case:
    """One random case."""

    config: ClusterConfig
    trace: Trace
    dispatch: str
    reads_ps: tuple[int, ...]
    horizon_ps: int | None

    @property
    def predicted(self) -> np.ndarray:
        """What the estimator will say, for the reference."""
        if self.config.estimator == "oracle":
            return self.trace.output_tokens
        tokens = self.config.estimator_params["tokens"]
        return np.full(len(self.trace), int(np.rint(tokens)))


def random_case(engine: str, seed: int) -> Case:
    """Return the case of that engine and seed: starved to ample KV, bursts, equal arrivals, one-token outputs."""
    rng = np.random.default_rng([seed, len(engine), ord(engine[-1])])
    is_grid = rng.random() < 0.5
    n = int(rng.integers(2, 60))
    prompt, output = _random_lengths(rng, n)
    size = int(rng.choice([1, 3, 4, 16, 16, 24]))
    need = -(-(prompt + output - 1) // size)
    slack = rng.choice([1.05, 1.3, 2.0, 4.0, 30.0])
    kv_blocks = int(need.max() * slack) + int(rng.integers(0, 3))
    seats = int(rng.integers(1, 65))
    if rng.random() < 0.2:  # somebody does not fit
        kv_blocks = max(1, int(need.max() * rng.uniform(0.6, 1.0)))
    order = str(
        rng.choice(
            ["fcfs", "fcfs", "fcfs", "priority", "priority", "sjf", "test-aging", "test-shuffle"]
        )
    )
    instances = int(rng.choice([1, 1, 1, 2, 3]))
    pool = GRID_PROFILES if is_grid else REAL_PROFILES
    is_mixed = instances > 1 and rng.random() < 0.3
    is_stale = instances > 1 and rng.random() < 0.5
    config = ClusterConfig(
        instances=instances,
        profile=tuple(pool[:2]) if is_mixed else str(rng.choice(pool)),
        engine=engine,
        max_num_seqs=seats,
        max_num_batched_tokens=_random_budget(rng, engine, seats, int((prompt + output).max())),
        kv_blocks=kv_blocks,
        block_size=size,
        watermark=None if rng.random() < 0.5 else float(rng.choice([0.0, 0.01, 0.1])),
        reserve_full_prompt=bool(rng.random() < 0.7),
        bypass_blocked=bool(rng.random() < 0.2) and engine != "static",
        batch_size=int(rng.integers(1, 20)),
        batch_wait_s=float(rng.choice([0.0, 0.003, 0.01, 0.5])),
        order=order,
        tiers=4,
        routers=int(rng.choice([1, 2, 3])) if is_stale else 1,
        metrics_interval_s=float(rng.choice([0.002, 0.05, 1.0])) if is_stale else 0.0,
        estimator="oracle" if rng.random() < 0.5 else "constant",
        estimator_params={},
        calibration=1.0 if is_grid else float(rng.uniform(0.5, 2.0)),
        host_overhead_ms=float(rng.choice([0.0, 1.0])) if is_grid else float(rng.uniform(0, 3)),
    )
    if config.estimator == "constant":
        tokens = float(rng.integers(1, 300))
        config = ClusterConfig(**{**config.model_dump(), "estimator_params": {"tokens": tokens}})
    arrival_ps = _random_arrivals(rng, n, is_grid)
    reads = _random_instants(rng, arrival_ps, int(rng.integers(0, 12)), is_grid)
    trace = Trace(
        arrival_s=arrival_ps / 1e12,
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        tier=rng.integers(0, 4, n).astype(np.int16),
    )
    dispatch = (
        "test-by-index"
        if instances == 1
        else str(rng.choice(["least-requests", "least-kv", "least-tokens"]))
    )
    if dispatch == "test-by-index" or (kv_blocks < need.max() and is_mixed):
        dispatch = "least-requests"
    horizon_ps = int(arrival_ps[-1] * rng.uniform(0.3, 1.5)) if rng.random() < 0.2 else None
    if horizon_ps is not None:
        horizon_ps = int(np.rint(horizon_ps / 1e12 * 1e12))
        reads = [t for t in reads if t <= horizon_ps]
    return Case(config, trace, dispatch, tuple(reads), horizon_ps)


def _random_lengths(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    longest_prompt, longest_output = (
        int(rng.choice([8, 60, 700])),
        int(rng.choice([1, 12, 80, 300])),
    )
    prompt = rng.integers(1, longest_prompt + 1, n)
    output = rng.integers(1, longest_output + 1, n)
    output[rng.random(n) < 0.15] = 1
    return prompt, output


def _random_budget(rng: np.random.Generator, engine: str, seats: int, longest: int) -> int:
    if engine == "vllm-v0":
        return int(longest * rng.choice([1.0, 1.5, 4.0]))
    return max(seats, int(np.exp(rng.uniform(np.log(16), np.log(2048)))))


def _random_arrivals(rng: np.random.Generator, n: int, is_grid: bool) -> np.ndarray:
    """Return sorted arrivals, ps: spread out, in bursts, or all at once."""
    kind = rng.random()
    span_ms = float(rng.choice([20, 300, 3000]))
    if kind < 0.15:
        times_ms = np.zeros(n)
    elif kind < 0.5:
        times_ms = rng.choice(rng.uniform(0, span_ms, max(1, n // 5)), n)
    else:
        times_ms = rng.uniform(0, span_ms, n)
    arrival_ps = np.sort((np.rint(times_ms) if is_grid else times_ms) * PS_PER_MS)
    return np.rint(arrival_ps).astype(np.int64)


def _random_instants(
    rng: np.random.Generator, arrival_ps: np.ndarray, n: int, is_grid: bool
) -> list[int]:
    """Return sorted instants of reads: on arrivals, on the grid, and anywhere."""
    end = int(arrival_ps[-1]) + int(rng.choice([10, 1000, 5000])) * PS_PER_MS
    instants = rng.integers(0, end + 1, n)
    if is_grid:
        instants = instants // PS_PER_MS * PS_PER_MS
    on_arrivals = rng.choice(arrival_ps, min(n // 3, len(arrival_ps)))
    return sorted({int(t) for t in np.concatenate([instants, on_arrivals])})


def reference_of(case: Case) -> ReferenceCluster:
    """Return the reference cluster before its first event."""
    config = case.config
    rows = config.fleet_profiles
    specs = [_spec(config, rows[i % len(rows)]) for i in range(config.instances)]
    arrival_ps = np.rint(case.trace.arrival_s * 1e12).astype(np.int64)
    predicted = case.predicted
    requests = [
        Request(
            index=r,
            arrival_ps=int(arrival_ps[r]),
            prompt_tokens=int(case.trace.prompt_tokens[r]),
            output_tokens=int(case.trace.output_tokens[r]),
            predicted_tokens=int(predicted[r]),
            tier=int(case.trace.tier[r]),
        )
        for r in range(len(case.trace))
    ]
    return ReferenceCluster(
        specs,
        requests,
        REFERENCE_DISPATCH[case.dispatch](),
        horizon_ps=case.horizon_ps,
        metrics_interval_ps=round(config.metrics_interval_s * 1e12),
        routers=config.routers,
    )


def _spec(config: ClusterConfig, row: Profile) -> InstanceSpec:
    time = IterationTime(
        c0=row.c0_ms,
        c_token=row.c_token_ms,
        c_above_knee=row.c_above_knee_ms,
        knee=row.knee_tokens,
        c_decode_step=row.c_decode_step_ms,
        c_seq=row.c_seq_ms,
        c_kv=row.c_kv_ms,
        c_prefill_step=row.c_prefill_step_ms,
        c_prefill_attention=row.c_prefill_attention_ms,
        calibration=row.calibration if config.calibration is None else config.calibration,
        host_overhead_ms=config.host_overhead_ms,
    )
    return InstanceSpec(
        engine=config.engine,
        time=time,
        kv_blocks=config.kv_blocks or row.kv_blocks(config.block_size),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_size=config.block_size,
        watermark=config.watermark,
        reserve_full_prompt=config.reserve_full_prompt,
        bypass_blocked=config.bypass_blocked,
        batch_size=config.batch_size,
        batch_wait_ps=round(config.batch_wait_s * 1e12),
        order=REFERENCE_KEYS.get(config.order, config.order),
        time_dependent=config.order.startswith("test-"),
    )


def simulation_of(case: Case) -> Simulation:
    """Return the simulation before its first event."""
    horizon_s = None if case.horizon_ps is None else case.horizon_ps / 1e12
    return Simulation(
        case.trace, case.config, find_policy("dispatch", case.dispatch), horizon_s=horizon_s
    )
