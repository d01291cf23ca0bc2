"""Episodes: the kernels under every environment, single and vector.

One EPISODE record a sub-environment, with the address of its simulation's state. `play` hands an answer to the engine,
runs it to the next decision that the agent owns, and reads what has accrued; `observe` writes observation and mask.
Whatever needs Python (room in a ledger, a part of the engine not compiled yet, an error) comes back as `status`.
"""

from typing import NamedTuple

import numpy as np
from numba import float32, float64, int8, int64, types, uint64

from servegym.envs.agent import IS_ANSWERED, N_PAIRS, PAIRS, chosen_request
from servegym.envs.observation import observe
from servegym.envs.prefetch import prefetch
from servegym.simulator.calls import (
    call_dispatch,
    call_queue,
    call_run,
    centre,
    reader,
    records_type,
    state_at,
    store,
    tuple_type,
)
from servegym.simulator.event_loop import last_event_ps
from servegym.simulator.gateway import view_of
from servegym.simulator.instants import is_stuck
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.metrics import is_slo_missed
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.state import (
    ABSENT,
    ACTIVE,
    ADMISSION,
    ASKED,
    DISPATCH,
    DRAINING,
    MIGRATION,
    NEVER,
    NO_REQUEST,
    OK,
    QUEUEING,
    SCALING,
    UNFINISHED,
    Request,
)
from servegym.simulator.tally import FIRST_TOKEN, LATENCY, WEIGHTED, accrued
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    REJECT,
    counted,
    is_accepting,
    is_active,
    is_draining,
    is_ready,
    measured,
    n_instances,
    queue_head,
    queue_length,
)

# What the agent decides.
KINDS = ("dispatch", "admission", "ordering", "serve", "migration", "scaling", "headroom")
TO_DISPATCH, TO_ADMIT, TO_ORDER, TO_SERVE, TO_MIGRATE, TO_SCALE, TO_SET_HEADROOM = range(7)

TERMS = ("latency", "weighted_latency", "slo", "ttft")  # of rewards

BUSY_LINES = 4  # of an INSTANCE, that most decisions read or write

# Rows of outcomes.
REWARD, ELAPSED, TERMINATED, TRUNCATED, ILLEGAL, FIRST_TERM = range(6)
OUTCOMES = FIRST_TERM + len(TERMS)

IDLE, BEGIN, ANSWER, GO_ON = 0, 1, 2, 3  # what `play` has to do with a sub-environment

EPISODE = np.dtype(
    [
        ("state_pointer", "i8"),  # of the simulation's Core
        ("run_address", "i8"),
        ("kind", "i8"),  # TO_DISPATCH ..
        ("term", "i8"),  # whose change is the reward
        ("horizon_ps", "i8"),  # NEVER without one
        ("is_cut", "i8"),  # 1: the horizon cuts arrivals off
        ("interval_ps", "i8"),  # headroom: between control ticks
        ("most_pairs", "i8"),  # migration: pairs a tick
        ("fallback_address", "i8"),  # dispatch and ordering; 0: the kind's own
        ("todo", "i8"),  # IDLE ..
        ("status", "i8"),  # ASKED, OK (over), or what Python has to see to
        ("tick_ps", "i8"),  # headroom: the next control tick
        ("last_ps", "i8"),  # the instant of the last decision
        ("accrued", "f8", (len(TERMS),)),  # of each term, at the last decision
        ("terms", "f8", (len(TERMS),)),  # what the last step paid
        ("reward", "f8"),
        ("elapsed_s", "f8"),  # of the last step
        ("total", "f8"),  # sum of rewards of the episode
        ("n_steps", "i8"),
        ("n_illegal", "i8"),
        ("is_illegal", "i8"),  # the last action
        ("is_over", "i8"),  # nothing is left to decide
        ("terminated", "i8"),  # by the last step
        ("truncated", "i8"),
    ]
)


class Table(NamedTuple):
    """The arrays of N sub-environments that kernels work on, A actions and D observed numbers each."""

    episodes: np.ndarray  # EPISODE[N]
    actions: np.ndarray  # int64[N]
    levels: np.ndarray  # float64[N, 2]: headroom's peak and decay
    slots: np.ndarray  # int64[n, 2]: where in `params` a value of levels[:, k] goes, and k
    fallback_params: np.ndarray  # float64[N, params]: some follow from the trace
    fallback_memory: np.ndarray  # float64[N, size]
    fallback_streams: np.ndarray  # uint64[N, 1]
    features: np.ndarray  # int64[4, most]: columns that are observed, by part; -1 behind them
    row: np.ndarray  # float32[most], scratch
    is_whole: np.ndarray  # int64[1]: 1 if all features of instances are observed, in order
    observations: np.ndarray  # float32[N, D]: cluster, instances, queues, request
    masks: np.ndarray  # int8[N, A]
    outcomes: np.ndarray  # float64[OUTCOMES, N]: of the last step, for whoever hands all of them on


TABLE = tuple_type(
    Table,
    records_type(EPISODE),
    types.Array(int64, 1, "C"),
    types.Array(float64, 2, "C"),
    types.Array(int64, 2, "C"),
    types.Array(float64, 2, "C"),
    types.Array(float64, 2, "C"),
    types.Array(uint64, 2, "C"),
    types.Array(int64, 2, "C"),
    types.Array(float32, 1, "C"),
    types.Array(int64, 1, "C"),
    types.Array(float32, 2, "C"),
    types.Array(int8, 2, "C"),
    types.Array(float64, 2, "C"),
)
table_at = reader(TABLE)


@kernel
def store_table(address, table):
    """Write the descriptors of a Table's arrays to an address, from where `play` reads them; return it."""
    return store(address, table)


@kernel
def play(pointer, is_answered):
    """Play the Table at an address: its arrays would take longer to hand over than an environment to play.

    is_answered: whoever is IDLE has an answer.
    """
    return _play(table_at(pointer), is_answered)


@kernel
def _play(table, is_answered):
    """Let every sub-environment do what its record says (mutates it); return how many need Python."""
    n_stuck = 0
    for e in range(table.episodes.shape[0]):
        episode = table.episodes[e]
        if e + 1 < table.episodes.shape[0]:
            _expect(table.episodes[e + 1])
        if episode.todo == IDLE:
            if not is_answered:
                continue
            episode.todo = ANSWER
        _play_one(table, e, episode)
        is_done = episode.status == ASKED or episode.status == OK
        episode.todo = IDLE if is_done else GO_ON
        _tell(table.outcomes, e, episode)
        n_stuck += not is_done
    return n_stuck


@kernel
def _expect(episode):
    """Ask for the instances of a sub-environment that is played after the present one."""
    if episode.state_pointer == 0:
        return  # none yet
    instances = state_at(episode.state_pointer).instances
    for i in range(instances.shape[0]):
        for line in range(BUSY_LINES):
            prefetch(instances, i, line)


@kernel
def _tell(outcomes, e, episode):
    outcomes[REWARD, e], outcomes[ELAPSED, e] = episode.reward, episode.elapsed_s
    outcomes[TERMINATED, e], outcomes[TRUNCATED, e] = episode.terminated, episode.truncated
    outcomes[ILLEGAL, e] = episode.is_illegal
    for k in range(len(TERMS)):
        outcomes[FIRST_TERM + k, e] = episode.terms[k]


@kernel
def _play_one(table, e, episode):
    state = state_at(episode.state_pointer)
    is_answered = True
    if episode.todo == BEGIN:
        _forget(episode)
    elif episode.todo == ANSWER:
        episode.n_steps += 1
        episode.is_illegal = 0
        if not episode.is_over:
            is_answered = _answer(table, e, episode, state)
    if not episode.is_over and is_answered:
        episode.status = _run(episode, state)
        if episode.status == OK:
            episode.is_over = 1
            if not _is_drained(
                state
            ):  # stuck without a horizon: the last tick was later than the last event
                state.shared[0].now_ps = max(state.shared[0].now_ps, episode.last_ps)
            state.shared[0].asked_request = NO_REQUEST
        elif episode.status != ASKED:
            return
        _catch_up(state)
    if episode.n_steps > 0:
        _pay(episode, state)
    observe(table, e, episode, state)
    _mask(table.masks[e], episode, state)


@kernel
def _forget(episode):
    """Begin an episode: nothing is paid yet (mutates episode)."""
    episode.last_ps = episode.tick_ps = episode.n_steps = episode.n_illegal = 0
    episode.is_over = episode.terminated = episode.truncated = episode.is_illegal = 0
    episode.total = episode.reward = episode.elapsed_s = 0.0
    for k in range(len(TERMS)):
        episode.accrued[k] = episode.terms[k] = 0.0


@kernel
def _run(episode, state):
    """Run to the agent's next decision; return ASKED, OK when the episode is over, or why Python is needed."""
    if episode.kind == TO_SET_HEADROOM:
        return _run_to_tick(episode, state)
    return call_run(episode.run_address, episode.state_pointer, episode.horizon_ps)


@kernel
def _run_to_tick(episode, state):
    until_ps = min(episode.tick_ps, episode.horizon_ps)
    code = call_run(episode.run_address, episode.state_pointer, until_ps)
    if code != OK or until_ps == episode.horizon_ps:
        return code
    is_endless = episode.horizon_ps == NEVER and is_stuck(state, until_ps)
    if _is_drained(state) or is_endless:
        return call_run(episode.run_address, episode.state_pointer, episode.horizon_ps)
    episode.tick_ps += min(episode.interval_ps, NEVER - episode.tick_ps)  # an int64
    return ASKED


@kernel
def _is_drained(state):
    """Return whether no request is in the system or to come."""
    n, control = state.requests.shape[0], centre(state).control[0]
    is_all_here = state.shared[0].next_arrival == n and control.n_retries == 0
    return is_all_here and centre(state).tally[0].n_ended == n and control.n_moves == 0


@kernel
def _catch_up(state):
    """Bring all instances to the decision, so that what has ended by then has accrued.

    To their blocks at once, which `observe` reads next, unless it reads a refresh. What else it reads is asked for.
    """
    cluster, is_refreshed = view_of(state), state.shared[0].metrics_interval_ps > 0
    outlooks = centre(state).outlooks
    for i in range(n_instances(cluster)):
        prefetch(outlooks, i, 0)
        prefetch(outlooks, i, 1)
        instance = counted(cluster, i) if is_refreshed else measured(cluster, i)
        prefetch(state.slots, instance.first_slot + instance.n_decoding, 0)
    for i in range(n_instances(cluster)):
        instance = state.instances[i]
        if instance.n_running > instance.n_decoding:
            first = state.slots[instance.first_slot + instance.n_decoding]
            prefetch(state.requests, np.int64(first.request), 1)  # its tokens


@kernel
def _pay(episode, state):
    """Pay what has accrued since the last decision (mutates episode)."""
    tally, now_ps = centre(state).tally[0], state.shared[0].now_ps
    if episode.is_over:
        is_drained = _is_drained(state) and not episode.is_cut
        episode.terminated, episode.truncated = is_drained, not is_drained
        if is_drained:
            now_ps = last_event_ps(state, centre(state).gateway[0])
    now_s = now_ps / PS_PER_S
    _pay_term(episode, 0, -accrued(tally, LATENCY, now_s))
    _pay_term(episode, 1, -accrued(tally, WEIGHTED, now_s))
    overdue = _overdue(state) if episode.is_over else 0.0
    _pay_term(episode, 2, tally.slo - overdue)
    _pay_term(episode, 3, -accrued(tally, FIRST_TOKEN, now_s))
    episode.reward = episode.terms[episode.term]
    episode.total += episode.reward
    episode.elapsed_s = max(0, now_ps - episode.last_ps) / PS_PER_S
    episode.last_ps = max(now_ps, episode.last_ps)


@kernel
def _pay_term(episode, k, value):
    episode.terms[k] = value - episode.accrued[k]
    episode.accrued[k] = value


@cold_kernel
def _overdue(state):
    """Return the weight of the unfinished requests whose SLO is lost at the end of the run."""
    total, now_ps = 0.0, state.shared[0].now_ps
    for r in range(state.shared[0].next_arrival):
        request = state.requests[r]
        tariff = centre(state).tariffs[request.tier]
        if request.status == UNFINISHED and is_slo_missed(request, tariff, now_ps):
            total += tariff.weight
    return total


@kernel
def _put(state, role, value):
    """Write an answer into the memory of the agent's policy of a role."""
    begin = state.policies[role].memory_begin
    state.memory[begin + IS_ANSWERED] = 1.0
    state.memory[begin + 1] = value


@kernel
def _answer(table, e, episode, state):
    """Hand the action to the engine; False if the agent is to be asked again before it goes on."""
    if episode.kind == TO_SET_HEADROOM:
        for k in range(table.slots.shape[0]):
            state.params[table.slots[k, 0]] = table.levels[e, table.slots[k, 1]]
        return True
    action = table.actions[e]
    if table.masks[e, action] == 0:
        episode.is_illegal = 1
        episode.n_illegal += 1
        action = _fallback(table, e, episode, state)
    if episode.kind == TO_DISPATCH:
        _put(state, DISPATCH, action)
    elif episode.kind == TO_ADMIT:
        _put(state, ADMISSION, ACCEPT if action == 0 else HOLD if action == 1 else REJECT)
    elif episode.kind == TO_ORDER:
        _put(state, QUEUEING, action)
    elif episode.kind == TO_SERVE:
        m = state.instances.shape[0]
        is_wait = action == table.masks.shape[1] - 1
        _put(state, QUEUEING, HOLD if is_wait else action // m)
        if not is_wait:
            _put(state, DISPATCH, action % m)
    elif episode.kind == TO_SCALE:
        _put(state, SCALING, action - 1)
    else:
        return _add_pair(table, e, episode, state, action)
    return True


@kernel
def _add_pair(table, e, episode, state, action):
    """Note a pair of a migration tick; return whether the tick's moves are complete."""
    m, begin = state.instances.shape[0], state.policies[MIGRATION].memory_begin
    is_nothing = action == m * m
    if not is_nothing:
        n = int(state.memory[begin + N_PAIRS])
        state.memory[begin + PAIRS + 2 * n] = action // m
        state.memory[begin + PAIRS + 2 * n + 1] = action % m
        state.memory[begin + N_PAIRS] = n + 1
        if n + 1 < min(episode.most_pairs, m) and _mask_moves(table.masks[e], state) > 0:
            return False
    state.memory[begin + IS_ANSWERED] = 1.0
    return True


@kernel
def _fallback(table, e, episode, state):
    """Return the action that is taken for one that is masked."""
    cluster = view_of(state)
    params, memory = table.fallback_params[e], table.fallback_memory[e]
    stream = table.fallback_streams[e]
    if episode.kind == TO_DISPATCH:
        request = Request(state.requests, np.int64(state.shared[0].asked_request))
        return call_dispatch(episode.fallback_address, cluster, request, params, memory, stream)
    if episode.kind == TO_ORDER:
        return call_queue(episode.fallback_address, cluster, params, memory, stream)
    return 1 if episode.kind == TO_SCALE else table.masks.shape[1] - 1


@kernel
def _mask(mask, episode, state):
    """Write which actions are legal; all, when nothing is left to decide (mutates mask)."""
    cluster, n = view_of(state), mask.shape[0]
    for a in range(n):
        mask[a] = 1
    if episode.is_over or episode.kind == TO_ADMIT or episode.kind == TO_SET_HEADROOM:
        return
    if episode.kind == TO_DISPATCH:
        request = Request(state.requests, np.int64(state.shared[0].asked_request))
        for i in range(n):
            mask[i] = is_accepting(cluster, request, i)
    elif episode.kind == TO_ORDER:
        for q in range(n):
            mask[q] = is_ready(cluster, q)
    elif episode.kind == TO_SERVE:
        _mask_pairs(mask, cluster)
    elif episode.kind == TO_MIGRATE:
        _mask_moves(mask, state)
    else:
        _mask_scaling(mask, state)


@kernel
def _mask_pairs(mask, cluster):
    m = n_instances(cluster)
    for q in range((mask.shape[0] - 1) // m):
        for i in range(m):
            is_legal = queue_length(cluster, q) > 0
            mask[q * m + i] = is_legal and is_accepting(cluster, queue_head(cluster, q), i)


@kernel
def _mask_moves(mask, state):
    """Write which pairs may still move something at this tick; return how many (mutates mask)."""
    cluster, m, n_legal = view_of(state), state.instances.shape[0], 0
    policy = state.policies[MIGRATION]
    rule = state.params[policy.params_begin]
    for source in range(m):
        is_source = is_active(cluster, source) or is_draining(cluster, source)
        is_source = is_source and not _is_paired(state, policy.memory_begin, 0, source)
        for destination in range(m):
            is_legal = is_source and source != destination and is_active(cluster, destination)
            is_legal = is_legal and not _is_paired(state, policy.memory_begin, 1, destination)
            if is_legal:
                is_legal = chosen_request(cluster, source, destination, rule) != NO_REQUEST
            mask[source * m + destination] = is_legal
            n_legal += is_legal
    mask[m * m] = 1
    return n_legal


@kernel
def _is_paired(state, begin, side, i):
    """Return whether instance i is a source (0) or destination (1) of a pair that the agent chose at this tick."""
    for k in range(int(state.memory[begin + N_PAIRS])):
        if state.memory[begin + PAIRS + 2 * k + side] == i:
            return True
    return False


@kernel
def _mask_scaling(mask, state):
    n_active = n_free = 0
    for i in range(state.instances.shape[0]):
        condition = state.instances[i].condition
        n_active += condition == ACTIVE
        n_free += condition in (ABSENT, DRAINING)
    mask[0] = n_active > centre(state).control[0].min_instances
    mask[2] = n_free > 0
