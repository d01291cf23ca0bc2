"""What a policy may see: accessors that bring an instance up to date before they read it.

With metrics_interval_s > 0 a router sees each instance as it stood at the last refresh, plus the router's own
placements since; with 0 everybody sees the truth. Source: docs/engine.md section 9.
"""

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for, known_blocks
from servegym.simulator.calls import call_catch_up, call_what_if, centre, centre_at, state_at
from servegym.simulator.iteration_time import iteration_ps
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.refresh import context_of, last_refresh_ps, restart_view
from servegym.simulator.seats import blocks_of_decoder
from servegym.simulator.state import (
    ACTIVE,
    ANY_ROUTER,
    BAD_READ,
    BLOCKS,
    COUNTS,
    DRAINING,
    NO_INSTANCE,
    NO_REQUEST,
    STATIC,
    VLLM_V1,
    Request,
)
from servegym.simulator.tiers import seen_row, tier_row, view_row
from servegym.simulator.urgency import first_to_move, moves_before
from servegym.simulator.waiting import first_in_walk, next_in_walk

HOLD = NO_INSTANCE
ACCEPT, REJECT = 1, 0  # or HOLD: what an admission policy answers
FINISH, MARGINAL, MARGINAL_BY_TIER = 0, 1, 2  # what a what-if is asked


@kernel
def n_instances(cluster):
    """Return the number of instances of the fleet."""
    return cluster.instances.shape[0]


@kernel
def now_s(cluster):
    """Return the instant being decided, seconds."""
    return cluster.shared[0].now_ps / 1e12


@kernel
def checked(cluster, i):
    """Return i if it is an instance; else stop the run with an error that names i, and return 0."""
    if 0 <= i < cluster.instances.shape[0]:
        return i
    cluster.shared[0].error, cluster.shared[0].error_instance = BAD_READ, i
    return 0


@kernel
def n_waiting(cluster, i):
    """Return the requests waiting at instance i, preempted ones included."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = observed(cluster, i)
        return cluster.instances[i].seen_waiting + cluster.views[view].waiting
    return counted(cluster, i).n_waiting


@kernel
def n_running(cluster, i):
    """Return the requests running at instance i."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        observed(cluster, i)
        return cluster.instances[i].seen_running
    return counted(cluster, i).n_running


@kernel
def used_blocks(cluster, i):
    """Return the KV blocks in use at instance i, those of the iteration in flight included."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        observed(cluster, i)
        return cluster.instances[i].seen_used_blocks
    return kv_blocks(cluster, i) - measured(cluster, i).free_blocks


@kernel
def free_blocks(cluster, i):
    """Return the free KV blocks of instance i."""
    return kv_blocks(cluster, i) - used_blocks(cluster, i)


@kernel
def kv_blocks(cluster, i):
    """Return the KV blocks that instance i has in all."""
    i = checked(cluster, i)
    return cluster.engines[cluster.instances[i].engine].kv_blocks


@kernel
def waiting_blocks(cluster, i):
    """Return the blocks that the waiting requests of instance i need for what they know (prompt and streamed)."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = observed(cluster, i)
        return cluster.instances[i].seen_waiting_blocks + cluster.views[view].waiting_blocks
    return counted(cluster, i).waiting_blocks


@kernel
def held_tokens(cluster, i):
    """Return the prompt and predicted output tokens of all requests at instance i, waiting or running."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = observed(cluster, i)
        return cluster.instances[i].seen_held_tokens + cluster.views[view].held_tokens
    return counted(cluster, i).held_tokens


@kernel
def head_blocks(cluster, i):
    """Return the blocks that the first waiting request of instance i needs for what it knows; 0 if none waits."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = observed(cluster, i)
        seen = cluster.instances[i].seen_head_blocks
        return seen if seen > 0 else cluster.views[view].first_blocks
    instance = counted(cluster, i)
    if instance.head == NO_REQUEST:
        return 0
    request = state_at(cluster.shared[0].state_pointer).requests[instance.head]
    return blocks_for(cluster.shared[0], request.prompt_tokens + request.generated)


@kernel
def context_tokens(cluster, i):
    """Return the tokens whose KV instance i's running requests have."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        observed(cluster, i)
        return cluster.instances[i].seen_context_tokens
    state = state_at(cluster.shared[0].state_pointer)
    return context_of(state, measured(cluster, i), cluster.shared[0].now_ps)


@kernel
def tier_count(cluster, i, p):
    """Return the requests of tier p at instance i, waiting or running; for p out of range 0."""
    i, n_tiers = checked(cluster, i), cluster.shared[0].n_tiers
    if p < 0 or p >= n_tiers:
        return 0
    if not cluster.shared[0].counts_tiers:
        return n_waiting(cluster, i) + n_running(cluster, i)
    tiers = state_at(cluster.shared[0].state_pointer).tiers
    if cluster.shared[0].metrics_interval_ps > 0:
        view = observed(cluster, i)
        return tiers[seen_row(cluster, i) + p] + tiers[view_row(cluster, view) + p]
    counted(cluster, i)
    return tiers[tier_row(cluster, i) + p]


@kernel
def n_tiers(cluster):
    """Return the number of priority tiers."""
    return cluster.shared[0].n_tiers


@kernel
def watermark_blocks(cluster, i):
    """Return the KV blocks that instance i leaves free at admission."""
    return cluster.engines[cluster.instances[checked(cluster, i)].engine].watermark_blocks


@kernel
def max_num_seqs(cluster, i):
    """Return the most requests that run at once on instance i."""
    engine = cluster.engines[cluster.instances[checked(cluster, i)].engine]
    return engine.batch_size if engine.kind == STATIC else engine.max_num_seqs


@kernel
def block_size(cluster):
    """Return the tokens in a KV block."""
    return cluster.shared[0].block_size


@kernel
def n_preempted_waiting(cluster, i):
    """Return the waiting requests of instance i that were ever preempted (the truth)."""
    return counted(cluster, checked(cluster, i)).n_once_preempted


@kernel
def prefill_alone_ms(cluster, request, i):
    """Return how long an iteration of instance i that prefills the request's prompt and nothing else takes, ms."""
    engine = cluster.engines[cluster.instances[checked(cluster, i)].engine]
    tokens = request.records[request.index].prompt_tokens
    return iteration_ps(engine, tokens, tokens * (tokens + 1), 0, 0) / 1e9


@kernel
def is_active(cluster, i):
    """Return whether instance i takes requests: not absent, starting, draining or failed."""
    return cluster.instances[checked(cluster, i)].condition == ACTIVE


@kernel
def is_draining(cluster, i):
    """Return whether instance i only finishes what it has."""
    i = checked(cluster, i)
    if cluster.instances[i].condition != DRAINING:
        return False
    instance = counted(cluster, i)
    n_here = instance.n_running + instance.n_waiting + instance.n_parked
    return n_here + instance.n_incoming > 0  # else it is absent, though nobody has looked yet


@kernel
def is_accepting(cluster, request, i):
    """Return whether instance i may be given the request now (docs/engine.md section 10)."""
    instance = cluster.instances[checked(cluster, i)]
    engine = cluster.engines[instance.engine]
    if instance.condition != ACTIVE or not fits_engine(request, engine):
        return False
    limit = cluster.shared[0].local_limit
    if limit < 0:
        return True
    if limit > 0:
        return counted(cluster, i).n_waiting < limit
    return _has_room(cluster, request, i, engine)


@cold_kernel
def _has_room(cluster, request, i, engine):
    """Return whether the engine would admit the request at its next iteration, behind those that wait (pull)."""
    instance = measured(cluster, i)
    seated = instance.n_running + instance.n_waiting
    if engine.kind == STATIC:
        return instance.is_batch_closed == 0 and seated < engine.batch_size
    if instance.n_once_preempted > 0 or seated + instance.n_parked >= engine.max_num_seqs:
        return False
    record = request.records[request.index]
    known = record.prompt_tokens + record.generated
    if engine.kind == VLLM_V1 and not engine.reserve_full_prompt:
        known = min(known, engine.max_num_batched_tokens)
    free = instance.free_blocks - instance.waiting_blocks - blocks_for(cluster.shared[0], known)
    return free >= engine.watermark_blocks


@kernel
def n_queues(cluster):
    """Return the number of queues at the gateway."""
    return centre_at(cluster.shared[0].centre_pointer).queues.shape[0] - 1


@kernel
def queue_length(cluster, q):
    """Return the requests in queue q of the gateway; 0 for a q that is none."""
    queues = centre_at(cluster.shared[0].centre_pointer).queues
    return queues[q].n_waiting if 0 <= q < queues.shape[0] - 1 else 0


@kernel
def queue_head(cluster, q):
    """Return the first request of queue q, which must not be empty."""
    state = state_at(cluster.shared[0].state_pointer)
    return Request(state.requests, centre(state).queues[q].head)


@kernel
def is_ready(cluster, q):
    """Return whether queue q has a head that some instance accepts."""
    return queue_length(cluster, q) > 0 and has_taker(cluster, queue_head(cluster, q))


@kernel
def has_taker(cluster, request):
    """Return whether some instance accepts the request."""
    for i in range(cluster.instances.shape[0]):
        if is_accepting(cluster, request, i):
            return True
    return False


@kernel
def n_decoding(cluster, i):
    """Return the running requests of instance i that decode, the first of its running ones (the truth)."""
    return measured(cluster, checked(cluster, i)).n_decoding


@kernel
def running_request(cluster, i, k):
    """Return the k-th running request of instance i, 0 <= k < n_running: those that decode first (the truth)."""
    state = state_at(cluster.shared[0].state_pointer)
    slot = state.slots[cluster.instances[i].first_slot + k]
    return Request(state.requests, int(slot.request))


@kernel
def running_blocks(cluster, i, k):
    """Return the KV blocks of the k-th running request of instance i, one that decodes (the truth)."""
    return blocks_of_decoder(state_at(cluster.shared[0].state_pointer), cluster.instances[i], k)


@kernel
def n_movable(cluster, i):
    """Return the requests of instance i that may be moved: waiting, or running and decoding (the truth)."""
    i = checked(cluster, i)
    return measured(cluster, i).n_waiting + cluster.instances[i].n_decoding


@kernel
def is_moving(cluster, r):
    """Return whether a move of request r is under way: whoever moves it then is refused (the truth)."""
    seen = centre_at(cluster.shared[0].centre_pointer)
    for m in range(seen.control[0].n_moves):
        if seen.moves[m].request == r and seen.moves[m].has_ended == 0:
            return True
    return False


@kernel
def n_outgoing(cluster, i):
    """Return the moves under way out of instance i (the truth)."""
    seen, n = centre_at(cluster.shared[0].centre_pointer), 0
    for m in range(seen.control[0].n_moves):
        n += seen.moves[m].source == i and seen.moves[m].has_ended == 0
    return n


@kernel
def n_incoming(cluster, i):
    """Return the moves under way to instance i that have something reserved there (the truth)."""
    return cluster.instances[checked(cluster, i)].n_incoming


@kernel
def least_urgent_waiting(cluster, i, most_blocks):
    """Return the index of the waiting request to move first from instance i, NO_REQUEST if there is none (the truth).

    The largest tier, then the fewest blocks, then the earliest arrival, among those that need at most so many blocks.
    """
    state, instance = (
        state_at(cluster.shared[0].state_pointer),
        counted(cluster, checked(cluster, i)),
    )
    if cluster.shared[0].ranks_waiting:
        return first_to_move(state, checked(cluster, i), most_blocks)
    # Without a migration policy in the config nobody keeps ranks; one may still be asked from outside.
    chosen, r = NO_REQUEST, first_in_walk(state, instance.head)
    while r != NO_REQUEST:
        if known_blocks(state, state.requests[r]) <= most_blocks and (
            chosen == NO_REQUEST or moves_before(state, r, chosen)
        ):
            chosen = r
        r = next_in_walk(state, r)
    return chosen


@kernel
def write_waiting(cluster, i, destination, moves, n):
    """Write a move of each waiting request of instance i behind the n in moves, if there is room; return how many.

    Of each but those in a move already: preempted since it began.
    """
    state = state_at(cluster.shared[0].state_pointer)
    r = first_in_walk(state, counted(cluster, checked(cluster, i)).head)
    while r != NO_REQUEST:
        if n < moves.shape[0] and not is_moving(cluster, r):
            moves[n, 0], moves[n, 1], moves[n, 2] = i, destination, r
            n += 1
        r = next_in_walk(state, r)
    return n


@kernel
def known_blocks_of(cluster, request):
    """Return the blocks that a request needs for what it knows, its prompt and streamed tokens, while it waits."""
    record = request.records[request.index]
    return blocks_for(cluster.shared[0], record.prompt_tokens + record.generated)


@kernel
def request_at(cluster, r):
    """Return request r of the trace."""
    return Request(state_at(cluster.shared[0].state_pointer).requests, int(r))


@kernel
def predicted_finish_s(cluster, request, i):
    """Return in how many seconds the request would finish, if instance i got it and nothing else from now on."""
    return finish_within_s(cluster, request, i, 0.0, np.inf)


@kernel
def finish_within_s(cluster, request, i, tokens, limit_s):
    """Return predicted_finish_s with `tokens` as the request's predicted output (0: its own), or infinity.

    Infinity when it is later than limit_s: for whoever looks for the least, which is found sooner.
    """
    shared = cluster.shared[0]
    i = checked(cluster, i)
    return call_what_if(
        shared.what_if_address, shared.state_pointer, i, request.index, FINISH, tokens, limit_s
    )


@kernel
def marginal_latency_s(cluster, request, i, is_weighted):
    """Return by how many seconds the request would lengthen the latencies of all on instance i, its own included."""
    shared = cluster.shared[0]
    i, what = checked(cluster, i), MARGINAL_BY_TIER if is_weighted else MARGINAL
    return call_what_if(
        shared.what_if_address, shared.state_pointer, i, request.index, what, 0.0, np.inf
    )


@kernel
def fits_engine(request, engine):
    """Return whether an instance with this configuration could ever hold the request."""
    record = request.records[request.index]
    longest = record.prompt_tokens + record.output_tokens - 1
    return record.need_blocks <= engine.largest_need and longest <= engine.largest_tokens


@kernel
def prompt_tokens(request):
    """Return the request's prompt tokens."""
    return request.records[request.index].prompt_tokens


@kernel
def predicted_tokens(request):
    """Return the estimator's prediction of the request's output tokens."""
    return request.records[request.index].predicted_tokens


@kernel
def output_tokens(request):
    """Return the true output tokens; only for policies declared oracle=True."""
    return request.records[request.index].output_tokens


@kernel
def tier(request):
    """Return the request's tier, 0 the most urgent."""
    return request.records[request.index].tier


@kernel
def tenant(request):
    """Return the code of the request's tenant (trace.tenant.names), 0 for a trace without."""
    return request.records[request.index].tenant


@kernel
def category(request):
    """Return the code of the request's category (trace.category.names), 0 for a trace without."""
    return request.records[request.index].category


@kernel
def arrival_s(request):
    """Return the request's arrival, seconds."""
    return request.records[request.index].arrival_ps / 1e12


@kernel
def preemptions(request):
    """Return how often the request was preempted."""
    return request.records[request.index].preemptions


@kernel
def counted(cluster, i):
    """Return the record of instance i with all counts of now."""
    instance = cluster.instances[i]
    if instance.event_ps <= cluster.shared[0].now_ps:
        _catch_up(cluster, i, cluster.shared[0].now_ps, COUNTS)
    return instance


@kernel
def measured(cluster, i):
    """Return the record of instance i with counts and blocks of now."""
    instance = cluster.instances[i]
    if (
        instance.event_ps <= cluster.shared[0].now_ps
        or instance.iteration_end_ps < cluster.shared[0].now_ps
    ):
        _catch_up(cluster, i, cluster.shared[0].now_ps, BLOCKS)
    return instance


@kernel
def observed(cluster, i):
    """Bring instance i's last refresh up to date; return the index of this router's view of it."""
    shared = cluster.shared[0]
    refresh_ps = last_refresh_ps(shared, cluster.instances[i], shared.now_ps)
    if cluster.instances[i].seen_ps < refresh_ps:
        _catch_up(cluster, i, refresh_ps, COUNTS)
    router = shared.router
    if router == ANY_ROUTER:
        router = shared.n_routers if shared.n_routers > 1 else 0
    view = router * cluster.instances.shape[0] + i
    if cluster.views[view].since_ps != refresh_ps:
        _restart_view(cluster, view, refresh_ps)
    return view


@cold_kernel
def _restart_view(cluster, view, refresh_ps):
    restart_view(state_at(cluster.shared[0].state_pointer), view, refresh_ps)


@kernel
def _catch_up(cluster, i, until_ps, depth):
    """Bring instance i to until_ps, by address: the engine is linked into no policy."""
    shared = cluster.shared[0]
    call_catch_up(shared.catch_up_address, shared.state_pointer, i, until_ps, depth)
