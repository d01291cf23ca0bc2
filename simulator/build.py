"""From trace, config and policies to the arrays of a fresh state."""

from typing import TYPE_CHECKING

import numpy as np

from servegym.simulator import state as layout
from servegym.simulator.config import ClusterConfig
from servegym.simulator.entries import catch_up_address
from servegym.simulator.kernel import IS_JIT_DISABLED, kernel
from servegym.simulator.profiles import Profile
from servegym.simulator.seconds import rint_ps, to_ps
from servegym.simulator.state import NO_INSTANCE, NO_REQUEST, UNFINISHED
from servegym.traces import Trace

if TYPE_CHECKING:
    from servegym.simulator.simulation import Simulation

ORDERS = {"fcfs": layout.FCFS, "priority": layout.PRIORITY}
NO_LIMIT = 2**62
CACHE_LINE = 64  # bytes
MOST_TOKENS = 2**30  # of one request: its square fits int64
ROW_FIELDS = (
    "knee_tokens",
    "c0_ms",
    "c_token_ms",
    "c_above_knee_ms",
    "c_decode_step_ms",
    "c_seq_ms",
    "c_prefill_step_ms",
    "c_prefill_attention_ms",
)

# Spawn keys of the independent random streams of one seed (the workload's are in traces/streams.py).
ESTIMATOR_KEY, POLICY_KEY = 1, 2


def random_stream(seed: int, key: int) -> np.uint64:
    """Return the start of one random stream; changing one leaves the others alone."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed = {seed!r}; must be a whole number >= 0")
    return np.random.SeedSequence(int(seed), spawn_key=(key,)).generate_state(1, np.uint64)[0]


def build_state(simulation: "Simulation") -> layout.State:
    """Return the state before the first arrival; ValueError for a trace that the config cannot take."""
    config, trace = simulation.config, simulation.trace
    n = config.instances
    rows = config.fleet_profiles
    params = [
        simulation.dispatch.param_values(simulation.dispatch_params, trace),
        simulation.order.param_values(config.order_params, trace)
        if simulation.order
        else np.zeros(0),
        simulation.estimator.param_values(config.estimator_params, trace),
    ]
    memory = [simulation.dispatch.memory_size(config), simulation.estimator.memory_size(config)]
    n_views = config.routers * n if config.metrics_interval_s > 0 else 1
    state = layout.State(
        shared=records(1, layout.SHARED),
        engines=records(len(rows), layout.ENGINE),
        instances=records(n, layout.INSTANCE),
        requests=build_requests(trace, config, simulation.horizon_ps),
        slots=records(n * config.seats, layout.SLOT),
        phases=aligned(n * config.block_size, np.dtype(np.int32)),
        views=records(n_views, layout.VIEW),
        params=np.concatenate(params),
        memory=np.zeros(sum(memory)),
        streams=np.array(
            [random_stream(simulation.seed, key) for key in (ESTIMATOR_KEY, POLICY_KEY)], np.uint64
        ),
    )
    _fill_cluster(state, simulation, np.cumsum([len(p) for p in params]), np.cumsum(memory))
    for engine, row in zip(state.engines, rows, strict=True):
        _fill_engine(engine, config, row)
    _fill_instances(state, config, len(rows))
    state.views["since_ps"] = -1
    set_addresses(state, simulation)
    return state


def aligned(n: int, dtype: np.dtype, is_zeroed: bool = True) -> np.ndarray:
    """Return n items that begin on a cache line, so that an instance's part touches as few lines as it can."""
    size = n * dtype.itemsize
    memory = (np.zeros if is_zeroed else np.empty)(size + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return memory[begin : begin + size].view(dtype)


def records(n: int, dtype: np.dtype, is_zeroed: bool = True) -> np.ndarray:
    """Return n records; interpreted kernels need their fields as attributes."""
    array = aligned(n, dtype, is_zeroed)
    return array.view(np.recarray) if IS_JIT_DISABLED else array


def set_addresses(state: layout.State, simulation: "Simulation") -> None:
    """Store this process's addresses of engine entries and policies (mutates state.shared)."""
    cluster = state.shared[0]
    cluster["catch_up_address"] = catch_up_address()
    cluster["dispatch_address"] = simulation.dispatch.address
    cluster["estimator_address"] = simulation.estimator.address
    cluster["order_address"] = simulation.order.address if simulation.order else 0


def build_requests(trace: Trace, config: ClusterConfig, horizon_ps: int | None) -> np.ndarray:
    """Return the records of the offered requests; ValueError for a tier that the config lacks."""
    arrival_ps = rint_ps(trace.arrival_s)
    n = (
        len(trace)
        if horizon_ps is None
        else int(np.searchsorted(arrival_ps, horizon_ps, side="left"))
    )
    tiers = trace.tier[:n]
    if n and tiers.max() >= config.tiers:
        row = int(np.argmax(tiers >= config.tiers))
        raise ValueError(
            f"tier[{row}] = {tiers[row]}; must be < tiers = {config.tiers} of the config"
        )
    _check_lengths(trace, n)
    requests = records(n, layout.REQUEST, is_zeroed=False)
    fill_requests(
        requests, arrival_ps, trace.prompt_tokens, trace.output_tokens, tiers, config.block_size
    )
    return requests


def _check_lengths(trace: Trace, n: int) -> None:
    """ValueError for a request whose tokens together pass what the kernels count in."""
    if n and int(trace.prompt_tokens[:n].max()) + int(trace.output_tokens[:n].max()) > MOST_TOKENS:
        total = trace.prompt_tokens[:n].astype(np.int64) + trace.output_tokens[:n]
        if total.max() > MOST_TOKENS:
            row = int(np.argmax(total))
            raise ValueError(
                f"prompt_tokens[{row}] + output_tokens[{row}] = {total[row]}; must be <= {MOST_TOKENS}"
            )


@kernel
def fill_requests(requests, arrival_ps, prompt_tokens, output_tokens, tiers, block_size):
    """Fill fresh records REQUEST[n] from the trace's arrays, every field, in one pass over memory."""
    for r in range(requests.shape[0]):
        request = requests[r]
        request.arrival_ps = arrival_ps[r]
        request.prompt_tokens = prompt_tokens[r]
        request.output_tokens = output_tokens[r]
        request.tier = tiers[r]
        longest = prompt_tokens[r] + output_tokens[r] - 1
        request.need_blocks = (longest + block_size - 1) // block_size
        request.admitted_ps = request.first_token_ps = request.finish_ps = -1
        request.instance = NO_INSTANCE
        request.next = request.right = NO_REQUEST
        request.key = 0.0
        request.predicted_tokens = request.generated = request.computed = 0
        request.preemptions = request.recomputed_tokens = request.migrations = 0
        request.status = UNFINISHED


def _fill_cluster(
    state: layout.State, simulation: "Simulation", params_end: np.ndarray, memory_end: np.ndarray
) -> None:
    config, cluster = simulation.config, state.shared[0]
    cluster["block_size"] = config.block_size
    is_power_of_two = config.block_size & (config.block_size - 1) == 0
    cluster["block_shift"] = config.block_size.bit_length() - 1 if is_power_of_two else -1
    cluster["order"] = ORDERS.get(config.order, layout.BY_POLICY)
    cluster["is_time_dependent"] = bool(simulation.order and simulation.order.is_time_dependent)
    cluster["metrics_interval_ps"] = to_ps(config.metrics_interval_s, "metrics_interval_s")
    cluster["n_routers"] = config.routers
    cluster["dispatch_params"], cluster["order_params"], cluster["estimator_params"] = params_end
    cluster["dispatch_memory"], cluster["estimator_memory"] = memory_end
    cluster["error_instance"] = layout.NO_INSTANCE


def _fill_engine(engine: np.void, config: ClusterConfig, row: Profile) -> None:
    calibration = row.calibration if config.calibration is None else config.calibration
    engine["kind"] = layout.ENGINE_KINDS.index(config.engine)
    engine["kv_blocks"] = config.kv_blocks_of(row)
    engine["watermark_blocks"] = config.watermark_blocks_of(row)
    engine["largest_need"] = config.largest_need_of(row)
    is_padded = config.engine == "vllm-v0"
    engine["largest_tokens"] = config.max_num_batched_tokens if is_padded else NO_LIMIT
    for name in ("max_num_seqs", "max_num_batched_tokens", "batch_size", "host_overhead_ms"):
        engine[name] = getattr(config, name)
    for name in ("reserve_full_prompt", "bypass_blocked"):
        engine[name] = getattr(config, name)
    engine["batch_wait_ps"] = to_ps(config.batch_wait_s, "batch_wait_s")
    for name in ROW_FIELDS:
        engine[name] = getattr(row, name)
    engine["calibration"] = calibration
    engine["kv_ps"] = round(calibration * row.c_kv_ms * 1e9)


def _fill_instances(state: layout.State, config: ClusterConfig, n_rows: int) -> None:
    index = np.arange(config.instances)
    instances = state.instances
    instances["engine"] = index % n_rows
    instances["is_active"] = 1
    instances["first_slot"] = index * config.seats
    instances["free_blocks"] = state.engines["kv_blocks"][instances["engine"]]
    instances["least_free_blocks"] = instances["free_blocks"]
    for name in ("event_ps", "stretch_end_ps", "wake_ps", "iteration_end_ps", "next_finish"):
        instances[name] = layout.NEVER
    instances["head"] = instances["tail"] = layout.NO_REQUEST
    instances["seen_ps"] = -1
