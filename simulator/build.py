"""From trace, config and policies to the arrays of a fresh state."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from servegym.simulator import state as layout
from servegym.simulator.config import ClusterConfig
from servegym.simulator.entries import catch_up_address, run_address, what_if_address
from servegym.simulator.kernel import IS_JIT_DISABLED, kernel
from servegym.simulator.links import link
from servegym.simulator.profiles import Profile
from servegym.simulator.seconds import rint_ps, to_ps
from servegym.simulator.state import AT_GATEWAY, NEVER, NO_INSTANCE, NO_REQUEST, UNFINISHED
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

# Spawn keys of the independent random streams of one seed, by role (the workload's are in traces/streams.py).
STREAM_KEYS = {
    "dispatch": 2,
    "ordering": 7,
    "estimation": 1,
    "remaining": 8,
    "admission": 3,
    "queue": 4,
    "migration": 5,
    "scaling": 6,
}
MOVES_PER_INSTANCE, LEAST_MOVES = 8, 256  # under way at once; more are refused
FIRST_LEDGER = 1024  # moves


def random_stream(seed: int, key: int) -> np.uint64:
    """Return the start of one random stream; changing one leaves the others alone."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed = {seed!r}; must be a whole number >= 0")
    return np.random.SeedSequence(int(seed), spawn_key=(key,)).generate_state(1, np.uint64)[0]


def build_state(simulation: "Simulation") -> layout.State:
    """Return the state before the first arrival; ValueError for a trace that the config cannot take."""
    config, trace = simulation.config, simulation.trace
    m, rows = config.most_instances, config.fleet_profiles
    faults, slow_rows = _build_faults(config)
    requests = build_requests(trace, config, simulation.horizon_ps)
    params, memory, policies = _build_policies(simulation)
    n_views = (config.routers + (config.routers > 1)) * m if config.metrics_interval_s > 0 else 1
    n_moves = max(LEAST_MOVES, MOVES_PER_INSTANCE * m) if config.migration else 0
    n_copies = 1 + (m if config.snapshot_interval_s > 0 else 0)
    has_timers, can_move = config.timeout_s is not None, config.migration is not None
    state = layout.State(
        shared=records(1, layout.SHARED),
        engines=records(len(rows) + len(slow_rows), layout.ENGINE),
        instances=records(m, layout.INSTANCE),
        requests=requests,
        slots=records(m * config.seats, layout.SLOT),
        phases=aligned(m * config.block_size, np.dtype(np.int32)),
        views=records(n_views, layout.VIEW),
        params=params,
        memory=memory,
        streams=_build_streams(simulation),
        policies=policies,
        gateway=records(1, layout.GATEWAY),
        queues=records(_n_queues(trace, config) + 1, layout.QUEUE),
        control=records(1, layout.CONTROL),
        tiers=np.zeros(_n_tier_counts(config, n_views), np.int32),
        moves=records(n_moves, layout.MOVE),
        ordered=np.zeros((n_moves, 3), np.int64),
        ledger=records(FIRST_LEDGER if config.migration else 0, layout.LEDGER),
        faults=faults,
        timers=records(len(requests) if has_timers else 0, layout.TIMER),
        timeouts_ps=_build_timeouts(config),
        outlooks=records(m, layout.OUTLOOK),
        waits=records(len(requests) if has_timers or can_move else 0, layout.WAIT),
        first_to_move=np.full(m * config.tiers if can_move else 0, NO_REQUEST, np.int32),
        copied_shared=records(1, layout.SHARED),
        copied_instances=records(n_copies, layout.INSTANCE),
        copied_slots=records(n_copies * config.seats, layout.SLOT),
        copied_phases=aligned(n_copies * config.block_size, np.dtype(np.int32)),
        copied_requests=records(_n_copied_requests(simulation, len(requests)), layout.REQUEST),
        tally=records(1, layout.TALLY),
        tariffs=records(config.tiers, layout.TARIFF),
        links=np.zeros((4, layout.LINK_WORDS), np.int64),
    )
    _fill_shared(state, simulation)
    _fill_gateway(state, simulation)
    _fill_control(state, config, simulation.horizon_ps)
    for e, (engine, row) in enumerate(zip(state.engines, rows, strict=False)):
        _fill_engine(engine, config, row)
        engine["profile"] = e
    for (e, factor), number in slow_rows.items():
        state.engines[number] = state.engines[e]
        _slow_down(state.engines[number], factor)
    _fill_instances(state, config, len(rows))
    if simulation.tally_slo is not None:
        state.tariffs[:] = simulation.tally_slo.by_tier(config.tiers, config.reject_penalty_s)
        state.shared[0]["keeps_tally"] = 1
    state.views["since_ps"] = -1
    state.outlooks["changes"] = state.outlooks["freed_changes"] = -1
    set_addresses(state, simulation)
    return state


def packed_size(state: layout.State) -> int:
    """Return the bytes that `pack` needs."""
    return sum(_whole_lines(array.nbytes) for array in state) + CACHE_LINE


def pack(state: layout.State, memory: np.ndarray) -> layout.State:
    """Return the state with all arrays in one piece of memory, uint8, the big ones last; it has no links yet.

    Many states in one allocation of huge pages need few entries of the processor's page table.
    """
    begin = -memory.ctypes.data % CACHE_LINE
    moved = {}
    for name in sorted(state._fields, key=lambda name: getattr(state, name).nbytes):
        array = getattr(state, name)
        place = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[name] = place.view(type(array))
        moved[name][...] = array
        begin += _whole_lines(array.nbytes)
    return layout.State(**moved)


def _whole_lines(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE


class Blank(NamedTuple):
    """A state before the first arrival, to play in again."""

    state: layout.State
    copies: tuple[tuple[np.ndarray, np.ndarray], ...]  # an array's bytes, and as they were


REDRAWN = ("requests", "params", "streams")  # follow from trace and seed


def blank_of(state: layout.State) -> Blank:
    """Return the fresh state with a copy of all in it that follows from the config alone."""
    kept = (a for name, a in zip(state._fields, state, strict=True) if name not in REDRAWN)
    in_bytes = [array.reshape(-1).view(np.uint8) for array in kept if array.size]
    return Blank(state, tuple((array, array.copy()) for array in in_bytes))


def restart_state(simulation: "Simulation", blank: Blank | None) -> Blank:
    """Return the state before the first arrival, in the arrays of a blank one where they fit (mutates them).

    They fit as many requests in as many queues. ValueError as in build_state; the blank one is then as it was.
    """
    config, trace = simulation.config, simulation.trace
    arrival_ps, n = _offered(trace, config, simulation.horizon_ps)
    n_queues = _n_queues(trace, config) + 1
    if blank is None or (len(blank.state.requests), len(blank.state.queues)) != (n, n_queues):
        return blank_of(build_state(simulation))
    params, streams = _build_params(simulation), _build_streams(simulation)
    state = blank.state
    for array, before in blank.copies:
        array[:] = before
    state.params[:], state.streams[:] = params, streams
    _fill_from_trace(state.requests, trace, arrival_ps, config.block_size)
    state.gateway[0]["queue_by_tenant"] = _queues_by_tenant(trace, config)
    return blank


def _build_streams(simulation: "Simulation") -> np.ndarray:
    """Return the start of the random stream of every decision that somebody takes, 0 for the others."""
    starts = [
        random_stream(simulation.seed, STREAM_KEYS[role]) if simulation.decider(role)[0] else 0
        for role in layout.ROLES
    ]
    return np.array(starts, np.uint64)


def _build_params(simulation: "Simulation") -> np.ndarray:
    """Return the parameters of all policies, float64, by role; those without a value at the trace's default."""
    deciders = map(simulation.decider, layout.ROLES)
    values = [policy.param_values(given, simulation.trace) for policy, given in deciders if policy]
    return np.concatenate([np.zeros(0), *values])


def _build_policies(
    simulation: "Simulation",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return params, memory and POLICY[roles], without addresses."""
    policies = records(len(layout.ROLES), layout.POLICY)
    n_params = n_memory = 0
    for record, role in zip(policies, layout.ROLES, strict=True):
        policy, _ = simulation.decider(role)
        record["params_begin"], record["memory_begin"] = n_params, n_memory
        if policy is not None:
            n_params += policy.n_values
            n_memory += policy.memory_size(simulation.config)
        record["params_end"], record["memory_end"] = n_params, n_memory
    return _build_params(simulation), np.zeros(n_memory), policies


def _n_queues(trace: Trace, config: ClusterConfig) -> int:
    if config.queue_by == "tenant":
        return len(trace.tenant.names) if trace.tenant else 1
    return config.tiers if config.queue_by == "tier" else 1


def _queues_by_tenant(trace: Trace, config: ClusterConfig) -> bool:
    return config.queue_by == "tenant" and trace.tenant is not None


def counts_tiers(config: ClusterConfig) -> bool:
    """Return whether requests are counted by instance and tier; else they are those that wait or run."""
    return config.tiers > 1 or config.migration is not None


def _n_tier_counts(config: ClusterConfig, n_views: int) -> int:
    """Return the length of `tiers`: true counts, with stale metrics what was seen and a view's own, the gateway's."""
    if not counts_tiers(config):
        return 0
    is_stale = config.metrics_interval_s > 0
    n_rows = config.most_instances * (1 + is_stale) + (n_views if is_stale else 0)
    return config.tiers * (n_rows + 1)  # and the gateway's


def _n_copied_requests(simulation: "Simulation", n: int) -> int:
    """Return how many request records a what-if and its snapshots may write over."""
    if not simulation.asks_what_if:
        return 0
    return 2 * n if simulation.config.snapshot_interval_s > 0 else n


def _build_timeouts(config: ClusterConfig) -> np.ndarray:
    """Return the time limit of every tier, ps; empty if nobody has one."""
    if config.timeout_s is None:
        return np.zeros(0, np.int64)
    limits = config.timeouts_s()
    return np.array([NEVER if s is None else to_ps(s, "timeout_s") for s in limits], np.int64)


def _build_faults(config: ClusterConfig) -> tuple[np.ndarray, dict[tuple[int, float], int]]:
    """Return both edges of every fault, by time; ends before beginnings, then as given.

    Also the rows of `engines` of slowed instances, by profile and factor: the product of those in force.
    """
    edges = []
    for number, fault in enumerate(config.faults):
        begin_ps = to_ps(fault.at_s, "at_s")
        end_ps = begin_ps + to_ps(fault.duration_s, "duration_s")
        edges.append((begin_ps, 1, number, end_ps))
        edges.append((end_ps, 0, number, end_ps))
    faults = records(len(edges), layout.FAULT)
    slow: list[int] = []  # in force
    slow_rows: dict[tuple[int, float], int] = {}
    for record, (at_ps, begins, number, end_ps) in zip(faults, sorted(edges), strict=True):
        fault = config.faults[number]
        record["at_ps"], record["until_ps"], record["begins"] = at_ps, end_ps, begins
        record["kind"] = layout.FAULT_KINDS.index(fault.kind)
        record["instance"] = fault.instance
        if fault.kind == "slow":
            if begins:
                slow.append(number)
            else:
                slow.remove(number)
            mine = [config.faults[k] for k in slow if config.faults[k].instance == fault.instance]
            record["engine"] = _row_of(config, fault.instance, [f.factor for f in mine], slow_rows)
    return faults, slow_rows


def _row_of(
    config: ClusterConfig, i: int, factors: list[float], slow_rows: dict[tuple[int, float], int]
) -> int:
    """Return the row of `engines` of instance i when those factors are in force (mutates slow_rows)."""
    n_rows, factor = len(config.fleet_profiles), math.prod(factors)
    if factor == 1.0:
        return i % n_rows
    return slow_rows.setdefault((i % n_rows, factor), n_rows + len(slow_rows))


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
    """Store this process's addresses of engine entries and policies (mutates state.shared and state.policies)."""
    link_state(state)
    state.shared[0]["catch_up_address"] = catch_up_address()
    state.shared[0]["run_address"] = run_address()
    state.shared[0]["play_address"] = 0  # compiled when a run comes to need it (Simulation.run)
    if simulation.asks_what_if:
        state.shared[0]["what_if_address"] = what_if_address()
    for record, role in zip(state.policies, layout.ROLES, strict=True):
        policy, _ = simulation.decider(role)
        record["address"] = policy.address if policy else 0
        record["observe_address"] = policy.observe_address if policy else 0


def with_copies(simulation: "Simulation") -> layout.State:
    """Return the state with room for what-ifs, which it was built without."""
    n = _n_copied_requests(simulation, len(simulation.state.requests))
    state = simulation.state._replace(copied_requests=records(n, layout.REQUEST))
    _fill_copies(state, simulation.config)
    set_addresses(state, simulation)
    return state


def link_state(state: layout.State) -> None:
    """Tell kernels where the state's arrays are (mutates state.links and state.shared)."""
    link(state, state.links.ctypes.data, layout.LINK_WORDS)


def build_requests(trace: Trace, config: ClusterConfig, horizon_ps: int | None) -> np.ndarray:
    """Return the records of the offered requests; ValueError for a tier that the config lacks."""
    arrival_ps, n = _offered(trace, config, horizon_ps)
    requests = records(n, layout.REQUEST, is_zeroed=False)
    _fill_from_trace(requests, trace, arrival_ps, config.block_size)
    return requests


def _offered(trace: Trace, config: ClusterConfig, horizon_ps: int | None) -> tuple[np.ndarray, int]:
    """Return all arrivals, ps, and how many come before the horizon; ValueError for one that cannot be taken."""
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
    return arrival_ps, n


def _fill_from_trace(
    requests: np.ndarray, trace: Trace, arrival_ps: np.ndarray, block_size: int
) -> None:
    """Fill records REQUEST[n] with the first n requests of a trace, every field."""
    fill_requests(
        requests, arrival_ps, trace.prompt_tokens, trace.output_tokens, trace.tier, block_size
    )
    for name in ("tenant", "category"):
        labels = getattr(trace, name)
        if labels is not None:
            requests[name] = labels.codes[: len(requests)]


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
        request.tenant = request.category = request.attempt = 0
        request.place = AT_GATEWAY
        request.status = UNFINISHED


def _fill_shared(state: layout.State, simulation: "Simulation") -> None:
    config, shared = simulation.config, state.shared[0]
    shared["block_size"] = config.block_size
    is_power_of_two = config.block_size & (config.block_size - 1) == 0
    shared["block_shift"] = config.block_size.bit_length() - 1 if is_power_of_two else -1
    shared["order"] = ORDERS.get(config.order, layout.BY_POLICY)
    shared["is_time_dependent"] = bool(simulation.order and simulation.order.is_time_dependent)
    shared["metrics_interval_ps"] = to_ps(config.metrics_interval_s, "metrics_interval_s")
    if simulation.asks_what_if:
        _fill_copies(state, config)
    shared["n_routers"] = config.routers
    shared["n_tiers"] = config.tiers
    shared["has_timeouts"] = len(state.timeouts_ps) > 0
    shared["links_back"] = len(state.waits) > 0
    shared["ranks_waiting"] = len(state.first_to_move) > 0
    shared["unplayed_ps"] = -1
    shared["counts_tiers"] = counts_tiers(config)
    shared["local_limit"] = -1 if config.max_local_waiting is None else config.max_local_waiting
    deciders = (config.policy_of("estimation"), config.policy_of("remaining"))
    shared["n_observing"] = sum(bool(policy and policy.observe) for policy in deciders)
    shared["n_lost_metrics"] = sum(fault.kind == "metrics" for fault in config.faults)
    shared["follows_outlook"] = _needs_outlook(simulation)
    shared["keeps_outlook"] = config.metrics_interval_s > 0 and _needs_outlook(simulation)
    shared["error_instance"] = layout.NO_INSTANCE
    shared["asked_request"] = NO_REQUEST


def _needs_outlook(simulation: "Simulation") -> bool:
    """Return whether anybody reads what requests are predicted to need."""
    policies = [simulation.decider(role)[0] for role in layout.ROLES]
    return simulation.keeps_outlook or any(policy and policy.uses_outlook for policy in policies)


def _fill_copies(state: layout.State, config: ClusterConfig) -> None:
    """Let there be no snapshot yet (mutates state)."""
    interval_ps = to_ps(config.snapshot_interval_s, "snapshot_interval_s")
    state.shared[0]["snapshot_interval_ps"] = interval_ps
    state.copied_instances["seen_ps"] = -1
    state.copied_requests["instance"] = NO_INSTANCE


def _fill_gateway(state: layout.State, simulation: "Simulation") -> None:
    config, gateway = simulation.config, state.gateway[0]
    gateway["queue_by_tenant"] = _queues_by_tenant(simulation.trace, config)
    gateway["queue_by_tier"] = config.queue_by == "tier"
    is_steady = config.scaling is None and not config.faults and not config.client_retries
    is_push = config.max_local_waiting is None and config.admission is None
    gateway["is_direct"] = is_steady and is_push and config.queue is None
    gateway["hold_timer_ps"] = to_ps(config.hold_timer_s, "hold_timer_s")
    gateway["max_hold_ps"] = to_ps(config.max_hold_s, "max_hold_s")
    gateway["last_round_ps"] = gateway["release_ps"] = gateway["chosen_queue"] = -1
    gateway["awaited"] = NO_REQUEST
    state.queues["head"] = state.queues["tail"] = NO_REQUEST


def _fill_control(state: layout.State, config: ClusterConfig, horizon_ps: int | None) -> None:
    control = state.control[0]
    control["horizon_ps"] = NEVER if horizon_ps is None else horizon_ps
    control["rebalance_ps"] = to_ps(config.rebalance_interval_s, "rebalance_interval_s")
    control["migration_stages"] = config.migration_stages
    limit = config.last_stage_blocks
    control["last_stage_blocks"] = NO_LIMIT if limit is None else limit
    control["scaling_ps"] = to_ps(config.scaling_interval_s, "scaling_interval_s")
    control["startup_ps"] = to_ps(config.startup_delay_s, "startup_delay_s")
    control["min_instances"] = config.min_instances
    control["is_failing"] = config.on_failure == "fail"
    control["client_retries"] = config.client_retries
    control["retry_backoff_ps"] = to_ps(config.retry_backoff_s, "retry_backoff_s")
    control["next_rebalance_ps"] = 0 if config.migration else NEVER
    control["next_scaling_ps"] = 0 if config.scaling else NEVER
    control["next_ready_ps"] = control["next_stage_ps"] = NEVER
    control["next_ps"] = 0 if config.migration or config.scaling else NEVER
    if config.faults:
        control["next_ps"] = min(control["next_ps"], int(state.faults["at_ps"][0]))
    control["completed"] = NO_REQUEST


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
    engine["slow_factor"] = 1.0
    engine["kv_ps"] = round(calibration * row.c_kv_ms * 1e9)
    bytes_per_block = config.block_size * (row.kv_bytes_per_token or 0)
    engine["block_copy_ps"] = round(bytes_per_block / (config.link_gb_per_s * 1e9) * 1e12)


def _slow_down(engine: np.void, factor: float) -> None:
    """Make iterations last that many times as long."""
    engine["slow_factor"] = factor
    engine["kv_ps"] = round(int(engine["kv_ps"]) * factor)


def _fill_instances(state: layout.State, config: ClusterConfig, n_rows: int) -> None:
    index = np.arange(config.most_instances)
    instances = state.instances
    instances["engine"] = instances["own_engine"] = index % n_rows
    instances["condition"] = np.where(index < config.instances, layout.ACTIVE, layout.ABSENT)
    instances["charged_since_ps"] = np.where(index < config.instances, 0, NEVER)
    instances["first_slot"] = index * config.seats
    instances["free_blocks"] = state.engines["kv_blocks"][instances["engine"]]
    instances["least_free_blocks"] = instances["free_blocks"]
    for name in (
        "charged_until_ps",
        "event_ps",
        "stretch_end_ps",
        "wake_ps",
        "iteration_end_ps",
        "next_finish",
        "ready_ps",
        "lost_from_ps",
    ):
        instances[name] = layout.NEVER
    instances["head"] = instances["tail"] = layout.NO_REQUEST
    instances["seen_ps"] = instances["released_ps"] = -1
