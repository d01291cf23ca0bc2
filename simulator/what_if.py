"""What-if: a copy of one instance plays its own future, with the lengths that a router believes in.

The copy is an instance, its seats and their phases in scratch rows; its requests are overwritten in place, played by
the engine's own kernels, and put back. So nothing of a real run changes, and a what-if that is told true lengths is
what happens if nothing else arrives. The true length of a stretch is cut to the iteration in flight: it tells outputs.
Source: Block and Astrolabe (the predictor), ours (marginal latency); docs/engine.md section 11. Seats and blocks that
moves hold stay held; a slowed instance runs at its own speed.
"""

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.calls import call_catch_up, call_remaining, copies, state_at
from servegym.simulator.iteration import end_stretch, start_iteration
from servegym.simulator.iteration_time import round_half_even
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.placement import join_queue
from servegym.simulator.state import (
    AT_INSTANCE,
    BLOCKS,
    FCFS,
    FINISHED,
    LATEST_PS,
    NEVER,
    NO_REQUEST,
    OK,
    PARKED,
    REMAINING,
    STATIC,
    UNFINISHED,
    Request,
)
from servegym.simulator.views import FINISH, MARGINAL_BY_TIER
from servegym.simulator.what_if_snapshot import (
    copy_instance,
    last_snapshot_ps,
    scratch_row,
    snapshot_of,
    was_placed,
)

LONGEST_REMAINDER = 2.0**30
MARGIN = 1 + 1e-9  # a limit in seconds, as picoseconds, is rounded to the later side


def what_if(state_pointer, i, r, what, tokens, limit_s):
    """Return seconds: FINISH, until request r finishes if placed on instance i now; MARGINAL, how much it delays all.

    tokens: the prediction of its output, 0 for its own. limit_s: a finish after it may be told as infinity, which is
    also the answer if the copy comes to a standstill or passes the longest time.
    """
    state = state_at(state_pointer)
    if state.requests[r].place == AT_INSTANCE or state.requests[r].place == PARKED:
        return np.inf  # it is on an instance already
    if what == FINISH:
        return _finish_s(state, i, r, tokens, limit_s)
    is_weighted = what == MARGINAL_BY_TIER
    with_it = _latencies_s(state, i, r, tokens, True, is_weighted)
    if with_it == np.inf:
        return np.inf
    without_it = _latencies_s(state, i, r, tokens, False, is_weighted)
    return np.inf if without_it == np.inf else with_it - without_it


@kernel
def _finish_s(state, i, r, tokens, limit_s):
    now_ps = state.shared[0].now_ps
    latest_ps = LATEST_PS
    if limit_s * 1e12 < LATEST_PS - now_ps:
        latest_ps = now_ps + int(limit_s * 1e12 * MARGIN) + 1
    n = _make_copy(state, i, r, tokens, True)
    _play(_copied(state), scratch_row(state), latest_ps, r)
    candidate, seconds = state.requests[r], np.inf
    if candidate.status == FINISHED:
        seconds = (candidate.finish_ps - now_ps) / 1e12
    _restore(state, n)
    return seconds


@cold_kernel
def _latencies_s(state, i, r, tokens, is_with, is_weighted):
    """Return the sum of (finish - now) over all requests of the copy, with the candidate or without."""
    now_ps, total = state.shared[0].now_ps, 0.0
    n = _make_copy(state, i, r, tokens, is_with)
    _play(_copied(state), scratch_row(state), NEVER, NO_REQUEST)
    for k in range(n):
        request = state.requests[copies(state).requests[k].instance]
        if request.status != FINISHED:
            total = np.inf
            break
        weight = 0.5**request.tier if is_weighted else 1.0
        total += weight * float(request.finish_ps - now_ps)
    _restore(state, n)
    return total / 1e12


@kernel
def _copied(state):
    """Return the state in which the copy is the scratch row of `instances`."""
    return state_at(state.shared[0].what_if_pointer)


@cold_kernel
def _play(state, i, until_ps, r):
    """Advance instance i to until_ps, or until request r has finished."""
    instance = state.instances[i]
    while state.shared[0].error == OK:
        if r != NO_REQUEST and state.requests[r].status == FINISHED:
            break
        if instance.stretch_end_ps != NEVER:
            if instance.stretch_end_ps > until_ps:
                break
            end_stretch(state, i, instance)
        else:
            if instance.wake_ps >= until_ps:
                break
            start_iteration(state, i, instance, instance.wake_ps)


@cold_kernel
def _make_copy(state, i, r, tokens, is_with):
    """Fill the scratch row with instance i as it is known to stand now, r placed if is_with; return requests saved.

    Mutates the scratch rows, copied_shared and the records of those requests; _restore() undoes the last.
    """
    shared, copy, row = state.shared[0], _copied(state), scratch_row(state)
    is_aged = shared.snapshot_interval_ps > 0
    begin_ps = last_snapshot_ps(shared, shared.now_ps) if is_aged else shared.now_ps
    _fetch(state, i, begin_ps, is_aged)
    _make_shared(state, begin_ps)
    instance = copies(state).instances[row]
    if instance.stretch_end_ps != NEVER and instance.stretch > 1:
        instance.stretch = 1
        instance.stretch_end_ps = instance.event_ps = instance.iteration_end_ps
    n, is_there = _take_over(state, copy, instance, r, is_aged, begin_ps)
    instance.engine = instance.own_engine
    if is_aged:
        n = _add_placements(state, copy, i, r, n, begin_ps)
    if is_with and not is_there:
        _save(state, r, n)
        request = state.requests[r]
        if tokens > 0.0:
            request.predicted_tokens = _whole_tokens(tokens)
        _believe(copy, instance, r, int(request.generated))
        _place(copy, row, r, shared.now_ps)
        n += 1
    return n


@kernel
def _fetch(state, i, begin_ps, is_aged):
    """Copy instance i, brought up to begin_ps, into the scratch row."""
    shared, row = state.shared[0], scratch_row(state)
    if is_aged:
        snapshot_of(state, i, begin_ps)
        copy_instance(
            state, copies(state).instances, copies(state).slots, copies(state).phases, i, row
        )
        return
    instance = state.instances[i]
    if instance.event_ps <= begin_ps or instance.iteration_end_ps < begin_ps:
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, begin_ps, BLOCKS)
    copy_instance(state, state.instances, state.slots, state.phases, i, row)


@kernel
def _make_shared(state, now_ps):
    """Let the copy have its own errors and clock; nobody counts, observes or learns from it."""
    copies(state).shared[0] = state.shared[0]
    shared = copies(state).shared[0]
    shared.error, shared.now_ps, shared.counts_tiers = OK, now_ps, 0
    shared.n_observing = shared.metrics_interval_ps = shared.snapshot_interval_ps = 0
    shared.keeps_tally = shared.follows_outlook = 0
    shared.links_back = shared.ranks_waiting = 0


@kernel
def _take_over(state, copy, instance, r, is_aged, begin_ps):
    """Save all requests of the copy and give them believed lengths; return (their number, whether r is one of them)."""
    n, is_there = 0, False
    base, least = instance.first_slot, NEVER
    for p in range(base, base + instance.n_running):
        n = _save_known(state, int(copy.slots[p].request), n, is_aged)
    n_running = n
    if instance.head != NO_REQUEST:
        n = _save_known(state, int(instance.head), n, is_aged)
    k = n_running
    while k < n:  # those behind the saved ones, in a list or a tree, until there are none
        request = state.requests[copies(state).requests[k].instance]
        if request.next != NO_REQUEST:
            n = _save_known(state, int(request.next), n, is_aged)
        if state.shared[0].order != FCFS and request.right != NO_REQUEST:
            n = _save_known(state, int(request.right), n, is_aged)
        k += 1
    if instance.stretch_end_ps == begin_ps:
        _play(copy, scratch_row(state), begin_ps, NO_REQUEST)  # no last token: a stretch goes on
    is_static = state.engines[instance.engine].kind == STATIC
    for k in range(n):
        index = copies(state).requests[k].instance
        is_there |= index == r
        if k < instance.n_decoding:
            slot = copy.slots[base + k]
            left = slot.finish_iteration - instance.iteration
            generated = state.requests[index].output_tokens - left
            slot.finish_iteration = instance.iteration + _believe(copy, instance, index, generated)
            least = min(least, slot.finish_iteration)
        elif k >= n_running:
            _believe(copy, instance, index, int(state.requests[index].generated))
        elif not is_static or instance.n_decoding == 0:  # those done in a batch have nothing left
            need_blocks = state.requests[index].need_blocks
            _believe(copy, instance, index, int(state.requests[index].generated))
            if is_static:  # it has reserved what it needs to its end
                instance.free_blocks += need_blocks - state.requests[index].need_blocks
    instance.next_finish = least
    return n, is_there


@kernel
def _save(state, r, n):
    """Save the record of request r as number n; `instance` of the saved one says which request it is."""
    copies(state).requests[n] = state.requests[r]
    copies(state).requests[n].instance = r


@kernel
def _save_known(state, r, n, is_aged):
    """Save request r and, if asked for, put it back to what it was at the snapshot; return n + 1."""
    _save(state, r, n)
    if is_aged:
        own = state.requests[r].instance
        state.requests[r] = copies(state).requests[state.requests.shape[0] + r]
        state.requests[r].instance = own
    return n + 1


@kernel
def _restore(state, n):
    """Put the saved records back; the copy never wrote `instance`."""
    for k in range(n):
        r = copies(state).requests[k].instance
        own = state.requests[r].instance
        state.requests[r] = copies(state).requests[k]
        state.requests[r].instance = own


@kernel
def _believe(state, instance, r, generated):
    """Replace the output of request r by what is believed; return the tokens left."""
    policy, request = state.policies[REMAINING], state.requests[r]
    left = _whole_tokens(
        call_remaining(
            policy.address,
            Request(state.requests, np.int64(r)),
            generated,
            state.params[policy.params_begin : policy.params_end],
            state.memory[policy.memory_begin : policy.memory_end],
        )
    )
    engine = state.engines[instance.engine]
    most = min(engine.largest_need * state.shared[0].block_size, engine.largest_tokens)
    left = max(1, min(left, most + 1 - request.prompt_tokens - generated))
    request.output_tokens = generated + left
    longest = request.prompt_tokens + generated + left - 1
    request.need_blocks = blocks_for(state.shared[0], longest)
    return left


@kernel
def _whole_tokens(tokens):
    """Return a number of tokens, rounded half to even, in 1 .. 2**30; 1 for NaN."""
    if not tokens >= 1.0:
        return 1
    return int(round_half_even(min(tokens, LONGEST_REMAINDER)))


@kernel
def _add_placements(state, copy, i, r, n, begin_ps):
    """Play from the snapshot on what the router of r placed on instance i since; return the requests saved."""
    shared, row = state.shared[0], scratch_row(state)
    first = shared.next_arrival
    while first > 0 and state.requests[first - 1].arrival_ps >= begin_ps:
        first -= 1
    for other in range(first, shared.next_arrival):
        is_own = shared.n_routers == 1 or other % shared.n_routers == r % shared.n_routers
        if is_own and other != r and was_placed(state, i, other):
            _save(state, other, n)
            n += 1
            _renew(state, other)
            at_ps = state.requests[other].arrival_ps
            _play(copy, row, at_ps, NO_REQUEST)
            _believe(copy, copies(state).instances[row], other, 0)
            _place(copy, row, other, at_ps)
    _play(copy, row, shared.now_ps, NO_REQUEST)
    return n


@kernel
def _renew(state, r):
    """Let request r be as at its arrival."""
    request = state.requests[r]
    request.generated = request.computed = request.preemptions = 0
    request.admitted_ps = request.first_token_ps = request.finish_ps = -1
    request.status = UNFINISHED


@kernel
def _place(copy, row, r, now_ps):
    """Let request r wait at the copy from now on."""
    copy.shared[0].now_ps = now_ps
    join_queue(copy, copy.instances[row], r)
