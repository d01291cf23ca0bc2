"""Migration: requests move between instances, waiting ones at once, decoding ones by a staged copy of their KV.

Source: Llumnix (OSDI 2024), two stages; its later version, up to three; docs/engine.md section 12. A request has one
owner at any time; what a move reserved at its destination is free again however it ends; every move that began and has
ended is in the ledger.
"""

import numpy as np

from servegym.simulator.admission import has_seat
from servegym.simulator.calls import call_catch_up, call_migration, centre
from servegym.simulator.gateway import is_holding, view_of
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.placement import join_waiting
from servegym.simulator.seats import (
    blocks_of_decoder,
    computed_by,
    count_decoder,
    find_next_finish,
    find_seat,
    insert_decoder,
    remove_slot,
)
from servegym.simulator.state import (
    ACTIVE,
    ANY_ROUTER,
    ASKED,
    AT_INSTANCE,
    BAD_MOVE,
    COLD,
    COMMITTED,
    COPYING,
    COPYING_LAST,
    COUNTS,
    DRAINING,
    ENDED_FIRST,
    JOINING,
    LATEST_PS,
    LOST_DESTINATION,
    LOST_SOURCE,
    MIGRATION,
    NEVER,
    NO_ROOM,
    OK,
    PARKED,
    PREEMPTED_FIRST,
    RETURNING,
    STATIC,
    STOPPING,
    TOO_LONG,
    UNFINISHED,
    Request,
)
from servegym.simulator.stretch import interrupt, wake
from servegym.simulator.tiers import count_tier
from servegym.simulator.views import fits_engine, is_moving
from servegym.simulator.waiting import remove_waiting, return_waiting

NOT_SEATED = -1


@kernel
def has_ledger_room(state):
    """Return whether all moves under way and all that one tick may begin will find room in the ledger."""
    control = centre(state).control[0]
    wanted = control.n_ledger + control.n_moves + centre(state).ordered.shape[0]
    return wanted <= centre(state).ledger.shape[0]


@cold_kernel
def play_rebalance(state, next_event_ps):
    """Ask the migration policy, carry out its moves, set the next tick.

    next_event_ps: of anything else; without a request anywhere the ticks before it are left out.
    """
    shared, control, policy = state.shared[0], centre(state).control[0], state.policies[MIGRATION]
    if not _is_any_at_work(state):
        _leave_out_ticks(control, next_event_ps)
        return
    shared.router = ANY_ROUTER
    n = call_migration(
        policy.address,
        view_of(state),
        centre(state).ordered,
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[MIGRATION : MIGRATION + 1],
    )
    if shared.error == ASKED:
        return
    _set_next_tick(control)
    if shared.error == OK and not 0 <= n <= centre(state).ordered.shape[0]:
        shared.error, shared.error_instance = BAD_MOVE, 0
    for k in range(n):
        if shared.error != OK:
            break
        source, destination, r = (
            centre(state).ordered[k, 0],
            centre(state).ordered[k, 1],
            centre(state).ordered[k, 2],
        )
        m = state.instances.shape[0]
        is_known = 0 <= source < m and 0 <= destination < m and 0 <= r < shared.next_arrival
        if not is_known:
            shared.error, shared.error_instance = BAD_MOVE, k
        elif not _begin(state, source, destination, r):
            control.n_refused_moves += 1
    settle_moves(state)


@kernel
def _set_next_tick(control):
    is_late = control.next_rebalance_ps > LATEST_PS - control.rebalance_ps
    control.next_rebalance_ps = (
        NEVER if is_late else control.next_rebalance_ps + control.rebalance_ps
    )


@kernel
def _leave_out_ticks(control, next_event_ps):
    """Set the next tick to the first one that has anything before it; NEVER if nothing is to come."""
    _set_next_tick(control)
    if next_event_ps == NEVER or next_event_ps > LATEST_PS - control.rebalance_ps:
        control.next_rebalance_ps = NEVER
    elif next_event_ps > control.next_rebalance_ps:
        ticks = (next_event_ps + control.rebalance_ps - 1) // control.rebalance_ps
        control.next_rebalance_ps = ticks * control.rebalance_ps


@kernel
def _is_any_at_work(state):
    """Bring all instances to now; return whether any request is in the system."""
    shared, is_busy = state.shared[0], is_holding(state)
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.event_ps <= shared.now_ps:
            call_catch_up(shared.catch_up_address, shared.state_pointer, i, shared.now_ps, COUNTS)
        is_busy |= instance.n_running + instance.n_waiting + instance.n_parked > 0
    return is_busy


@cold_kernel
def _begin(state, source, destination, r):
    """Begin a move; False if it is refused."""
    shared, request = state.shared[0], state.requests[r]
    there = state.instances[destination]
    interrupt(state, source, shared.now_ps)
    is_here = request.status == UNFINISHED and request.place == AT_INSTANCE
    if source == destination or not is_here or request.instance != source:
        return False
    if is_moving(view_of(state), r):
        return False
    engine = state.engines[there.engine]
    if there.condition != ACTIVE or not fits_engine(Request(state.requests, np.int64(r)), engine):
        return False
    here = state.instances[source]
    position = find_seat(state, here, r)
    if position == NOT_SEATED:
        _move_waiting(state, source, destination, r)
        return True
    if state.engines[here.engine].kind == STATIC or position >= here.n_decoding:
        return False
    return _begin_copy(state, source, destination, r, position)


@kernel
def _move_waiting(state, source, destination, r):
    """Move a waiting request at once."""
    shared, control, request = state.shared[0], centre(state).control[0], state.requests[r]
    here = state.instances[source]
    remove_waiting(state, here, r)
    here.held_tokens -= request.prompt_tokens + request.predicted_tokens
    count_tier(state, source, request, -1)
    wake(here, shared.now_ps)
    rest_if_idle(here)
    interrupt(
        state, destination, shared.now_ps
    )  # stores a refresh that it passes before it changes
    join_waiting(state, destination, r)
    _restart_progress(state, source, destination)
    _count_migration(request)
    entry = centre(state).ledger[control.n_ledger]
    entry.start_ps = entry.end_ps = entry.stop_ps = shared.now_ps
    entry.request, entry.source, entry.destination = r, source, destination
    entry.blocks, entry.stages, entry.outcome = 0, 0, COLD
    control.n_ledger += 1
    centre(state).gateway[0].release_ps = shared.now_ps


@kernel
def _restart_progress(state, source, destination):
    """Count preemptions without a token anew: there are other requests now than those they were counted for."""
    state.instances[source].preemptions_since = 0
    state.instances[destination].preemptions_since = 0


@kernel
def rest_if_idle(instance):
    """Let an instance that has lost its last request sleep."""
    if instance.stretch_end_ps == NEVER and instance.n_running + instance.n_waiting == 0:
        instance.wake_ps = instance.event_ps = NEVER


@kernel
def _count_migration(request):
    if request.migrations < 255:
        request.migrations += 1


@kernel
def _begin_copy(state, source, destination, r, position):
    """Begin the staged copy of a decoding request with all its blocks but the last; False if it is refused."""
    shared, control = state.shared[0], centre(state).control[0]
    here, there = state.instances[source], state.instances[destination]
    is_down = max(here.link_down_until_ps, there.link_down_until_ps) > shared.now_ps
    if is_down or control.n_moves == centre(state).moves.shape[0]:
        return False
    blocks = blocks_of_decoder(state, here, position) - 1
    if not _reserve(state, destination, blocks, False):
        return False
    m = control.n_moves
    control.n_moves += 1
    move = centre(state).moves[m]
    move.held_blocks = 0
    move.attempt = state.requests[r].attempt
    move.start_ps, move.stop_ps = shared.now_ps, -1
    move.request, move.source, move.destination = r, source, destination
    move.step, move.stage = COPYING, 1
    move.copied_blocks = move.reserved_blocks = blocks
    move.preemptions = state.requests[r].preemptions
    move.has_seat = move.has_ended = move.outcome = 0
    there.n_incoming += 1
    _copy(state, move, blocks)
    if move.next_ps == shared.now_ps:
        _play_move(state, move)
    return True


@cold_kernel
def _reserve(state, i, blocks, with_seat):
    """Take blocks, and a seat, of instance i for a move; False, and nothing taken, if there are too few."""
    interrupt(state, i, state.shared[0].now_ps)
    instance = state.instances[i]
    engine = state.engines[instance.engine]
    if instance.free_blocks - blocks < engine.watermark_blocks:
        return False
    if with_seat and not has_seat(instance, engine):
        return False
    instance.free_blocks -= blocks
    instance.least_free_blocks = min(instance.least_free_blocks, instance.free_blocks)
    instance.n_parked += 1 if with_seat else 0
    return True


@kernel
def _copy(state, move, blocks):
    """Send blocks over both links, behind what they have to send already; the step ends when they have arrived."""
    if blocks == 0:
        move.next_ps = state.shared[0].now_ps
        return
    here, there = state.instances[move.source], state.instances[move.destination]
    begin_ps = max(state.shared[0].now_ps, here.link_free_ps, there.link_free_ps)
    move.next_ps = begin_ps + blocks * state.engines[here.engine].block_copy_ps
    here.link_free_ps = there.link_free_ps = move.next_ps


@cold_kernel
def play_stages(state):
    """Play all steps of moves that end now, in the order in which the moves began."""
    for m in range(centre(state).control[0].n_moves):
        move = centre(state).moves[m]
        if move.has_ended == 0 and move.next_ps == state.shared[0].now_ps:
            _play_move(state, move)
    settle_moves(state)


@kernel
def settle_moves(state):
    """Take ended moves out of the list and find the next step of the others."""
    control, kept = centre(state).control[0], 0
    control.next_stage_ps = NEVER
    for m in range(control.n_moves):
        if centre(state).moves[m].has_ended == 0:
            control.next_stage_ps = min(control.next_stage_ps, centre(state).moves[m].next_ps)
            if kept < m:
                _overwrite(centre(state).moves[kept], centre(state).moves[m])
            kept += 1
    control.n_moves = kept


@kernel
def _overwrite(old, new):
    old.next_ps, old.start_ps, old.stop_ps = new.next_ps, new.start_ps, new.stop_ps
    old.request, old.source, old.destination = new.request, new.source, new.destination
    old.step, old.stage = new.step, new.stage
    old.copied_blocks, old.reserved_blocks = new.copied_blocks, new.reserved_blocks
    old.held_blocks, old.attempt = new.held_blocks, new.attempt
    old.preemptions, old.has_seat = new.preemptions, new.has_seat
    old.has_ended, old.outcome = new.has_ended, new.outcome


@cold_kernel
def _play_move(state, move):
    """Play a move's steps as long as they end now."""
    now_ps = state.shared[0].now_ps
    while move.has_ended == 0 and move.next_ps == now_ps and state.shared[0].error == OK:
        if move.step == COPYING:
            _end_stage(state, move)
        elif move.step == STOPPING:
            _stop(state, move)
        elif move.step == RETURNING:
            _return_request(state, move)
        else:
            _join(state, move)


@kernel
def _has_ended(state, move):
    """Return whether the request that a move was begun for has ended; its client may have asked again meanwhile."""
    request = state.requests[move.request]
    return request.status != UNFINISHED or request.attempt != move.attempt


@kernel
def _end_stage(state, move):
    """End a stage during which the request went on decoding: one more, or the last, or nothing."""
    control, request = centre(state).control[0], state.requests[move.request]
    here, there = state.instances[move.source], state.instances[move.destination]
    interrupt(state, move.source, state.shared[0].now_ps)
    if _has_ended(state, move):
        end_move(state, move, ENDED_FIRST)
        return
    if request.preemptions != move.preemptions:
        end_move(state, move, PREEMPTED_FIRST)
        return
    if there.condition != ACTIVE:
        end_move(state, move, LOST_DESTINATION)
        return
    position = find_seat(state, here, move.request)
    rest = blocks_of_decoder(state, here, position) - move.copied_blocks
    if rest > control.last_stage_blocks and move.stage < control.migration_stages - 1:
        if not _reserve(state, move.destination, rest - 1, False):
            end_move(state, move, NO_ROOM)
            return
        move.reserved_blocks += rest - 1
        move.copied_blocks += rest - 1
        move.stage += 1
        _copy(state, move, rest - 1)
    elif rest > control.last_stage_blocks:
        end_move(state, move, TOO_LONG)
    elif not _reserve(state, move.destination, rest, True):
        end_move(state, move, NO_ROOM)
    else:
        move.reserved_blocks += rest
        move.has_seat, move.step = 1, STOPPING
        move.stage += 1
        is_in_flight = here.stretch_end_ps != NEVER
        move.next_ps = here.iteration_end_ps if is_in_flight else state.shared[0].now_ps


@kernel
def _stop(state, move):
    """Take the request out of its source's batch, between two iterations, and send the rest of its blocks."""
    shared, request = state.shared[0], state.requests[move.request]
    here = state.instances[move.source]
    interrupt(state, move.source, shared.now_ps)
    if _has_ended(state, move):
        end_move(state, move, ENDED_FIRST)
        return
    position = find_seat(state, here, move.request)
    slot = state.slots[here.first_slot + position]
    request.computed = computed_by(state, here, slot)
    request.generated = request.output_tokens - (slot.finish_iteration - here.iteration)
    was_next = slot.finish_iteration == here.next_finish
    count_decoder(state, move.source, here, slot, -1)
    remove_slot(state, here, position)
    if was_next:
        find_next_finish(state, here)
    here.n_parked += 1
    rest_if_idle(here)
    request.place = PARKED
    move.stop_ps, move.step = shared.now_ps, COPYING_LAST
    move.held_blocks = move.reserved_blocks
    _copy(state, move, move.reserved_blocks - move.copied_blocks)


@kernel
def _join(state, move):
    """Hand the request over as soon as the destination has no iteration in flight."""
    shared, request = state.shared[0], state.requests[move.request]
    there = state.instances[move.destination]
    interrupt(state, move.destination, shared.now_ps)
    if there.condition != ACTIVE and there.condition != DRAINING:
        end_move(state, move, LOST_DESTINATION)
        return
    if there.stretch_end_ps != NEVER:
        move.step, move.next_ps = JOINING, there.iteration_end_ps
        return
    _leave_parking(state, move, request)
    there.n_parked -= 1
    there.n_incoming -= 1
    there.held_tokens += request.prompt_tokens + request.predicted_tokens
    count_tier(state, move.destination, request, 1)
    request.instance = move.destination
    _count_migration(request)
    _seat(state, move.destination, move.request)
    _restart_progress(state, move.source, move.destination)
    move.copied_blocks = move.held_blocks
    _write_ledger(state, move, COMMITTED)


@cold_kernel
def _leave_parking(state, move, request):
    """Let a parked request leave its source for good."""
    interrupt(state, move.source, state.shared[0].now_ps)
    here = state.instances[move.source]
    here.free_blocks += move.held_blocks
    here.n_parked -= 1
    wake(here, state.shared[0].now_ps)
    here.held_tokens -= request.prompt_tokens + request.predicted_tokens
    count_tier(state, move.source, request, -1)


@kernel
def _seat(state, i, r):
    """Let a request whose KV is here decode from the next iteration on (no iteration is in flight)."""
    instance = state.instances[i]
    state.requests[r].place = AT_INSTANCE
    insert_decoder(state, i, instance, r)
    wake(instance, state.shared[0].now_ps)


@cold_kernel
def end_move(state, move, outcome):
    """End a move that fails: free what it reserved, let a parked request go on at its source."""
    _release(state, move)
    if state.requests[move.request].place == PARKED:
        move.step, move.outcome = RETURNING, outcome
        move.next_ps = state.shared[0].now_ps
        _return_request(state, move)
    else:
        _write_ledger(state, move, outcome)


@cold_kernel
def _release(state, move):
    """Free the blocks and the seat that a move has reserved at its destination."""
    there = state.instances[move.destination]
    interrupt(state, move.destination, state.shared[0].now_ps)
    there.free_blocks += move.reserved_blocks
    there.n_parked -= move.has_seat
    there.n_incoming -= 1
    wake(there, state.shared[0].now_ps)
    move.reserved_blocks = move.has_seat = 0


@cold_kernel
def _write_ledger(state, move, outcome):
    shared, control = state.shared[0], centre(state).control[0]
    centre(state).gateway[0].release_ps = shared.now_ps
    move.has_ended = 1
    entry = centre(state).ledger[control.n_ledger]
    entry.start_ps, entry.end_ps, entry.stop_ps = move.start_ps, shared.now_ps, move.stop_ps
    entry.request, entry.source, entry.destination = move.request, move.source, move.destination
    entry.blocks, entry.stages, entry.outcome = move.copied_blocks, move.stage, outcome
    control.n_ledger += 1


@kernel
def _return_request(state, move):
    """Let a parked request run on at its source as soon as no iteration is in flight there."""
    here = state.instances[move.source]
    interrupt(state, move.source, state.shared[0].now_ps)
    if here.stretch_end_ps != NEVER:
        move.next_ps = here.iteration_end_ps
        return
    here.n_parked -= 1
    _seat(state, move.source, move.request)
    _write_ledger(state, move, move.outcome)


@cold_kernel
def abort_moves_of(state, i, outcome, is_lost):
    """End all moves from and to instance i; is_lost: i's parked requests wait at i now, for whoever takes them away."""
    for m in range(centre(state).control[0].n_moves):
        move = centre(state).moves[m]
        if move.has_ended:
            continue
        if is_lost and move.source == i:
            _lose_source(state, move)
        elif move.step != RETURNING and (move.source == i or move.destination == i):
            end_move(state, move, outcome)
    settle_moves(state)


@cold_kernel
def _lose_source(state, move):
    if move.step != RETURNING:
        _release(state, move)
    if state.requests[move.request].place == PARKED:
        here = state.instances[move.source]
        here.n_parked -= 1
        state.requests[move.request].place = AT_INSTANCE
        return_waiting(state, here, np.int64(move.request))
    _write_ledger(state, move, LOST_SOURCE)


@cold_kernel
def drop_parked(state, r):
    """Take a parked request, which has ended, out of the system: free all it has at both ends."""
    for m in range(centre(state).control[0].n_moves):
        move = centre(state).moves[m]
        if move.request == r and move.has_ended == 0:
            if move.step != RETURNING:
                _release(state, move)
            _leave_parking(state, move, state.requests[r])
            _write_ledger(state, move, ENDED_FIRST)
    settle_moves(state)
