"""Faults: crashes, slow instances, lost metrics, broken links, each with a beginning and an end.

Faults of one kind on one instance may overlap: factors multiply (build.py has worked them out), all else lasts until
the last of them is over. Source: docs/engine.md section 14.
"""

from servegym.simulator.calls import centre
from servegym.simulator.clients import hasten_overdue
from servegym.simulator.gateway import enqueue
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.migration import abort_moves_of
from servegym.simulator.preemption import count_recomputed
from servegym.simulator.scaling import leave_fleet, retire_if_empty, start_instance
from servegym.simulator.seats import computed_by, note_seat_change
from servegym.simulator.state import (
    ABSENT,
    ACTIVE,
    CRASH,
    DOWN,
    DRAINING,
    FAILED,
    LINK_LOSS,
    LOST_DESTINATION,
    LOST_LINK,
    METRICS_LOSS,
    NEVER,
    NO_REQUEST,
    SLOW,
    STARTING,
    STATIC,
)
from servegym.simulator.stretch import interrupt
from servegym.simulator.tally import tally_end
from servegym.simulator.tiers import tier_row
from servegym.simulator.waiting import pop_waiting


@cold_kernel
def play_faults(state, now_ps):
    """Begin and end the faults that are due, ends first."""
    control, gateway = centre(state).control[0], centre(state).gateway[0]
    while next_fault_ps(state) <= now_ps:
        edge = centre(state).faults[control.next_fault]
        control.next_fault += 1
        if edge.kind == CRASH and edge.begins:
            _crash(state, edge, now_ps)
        elif edge.kind == CRASH:
            _end_crash(state, edge.instance, now_ps)
        elif edge.kind == SLOW:
            interrupt(state, edge.instance, now_ps)
            state.instances[edge.instance].engine = edge.engine
        elif edge.kind == METRICS_LOSS and edge.begins:
            _lose_metrics(state.shared[0], state.instances[edge.instance], edge)
        elif edge.kind == LINK_LOSS and edge.begins:
            _lose_link(state, edge)
        gateway.release_ps = gateway.last_event_ps = now_ps


@kernel
def next_fault_ps(state):
    """Return when the next fault begins or ends, NEVER if none does."""
    k = centre(state).control[0].next_fault
    return centre(state).faults[k].at_ps if k < centre(state).faults.shape[0] else NEVER


@kernel
def _crash(state, edge, now_ps):
    """Take an instance down with all that is on it; an absent one stays as it is."""
    control, i = centre(state).control[0], edge.instance
    instance = state.instances[i]
    interrupt(state, i, now_ps)
    if instance.condition == DRAINING:
        retire_if_empty(state, i, now_ps)
    if instance.condition == ABSENT:
        return
    edge.has_hit = 1
    control.n_crashes += 1
    if control.n_moves > 0:
        abort_moves_of(state, i, LOST_DESTINATION, True)
    if instance.condition != DOWN:
        instance.was_before_crash = instance.condition
        control.n_draining -= 1 if instance.condition == DRAINING else 0
        instance.ready_ps = NEVER
        instance.condition = DOWN
    _lose_iteration(instance, now_ps)
    _lose_requests(state, i, now_ps)
    hasten_overdue(state, now_ps)


@kernel
def _lose_iteration(instance, now_ps):
    """Lose the iteration in flight; the time that it took so far was busy."""
    if instance.stretch_end_ps != NEVER:
        instance.busy_ps += now_ps - instance.iteration_start_ps
        instance.iteration_start_ps = now_ps
    instance.stretch_end_ps = instance.wake_ps = instance.event_ps = NEVER
    instance.stretch = instance.tail_chunk = instance.is_decoding = 0
    instance.has_admitted = instance.is_batch_closed = instance.preemptions_since = 0


@cold_kernel
def _lose_requests(state, i, now_ps):
    """Send all requests of an instance back to the gateway, or fail them, and leave it empty."""
    instance, n_seated = state.instances[i], state.instances[i].n_running
    is_static = state.engines[instance.engine].kind == STATIC
    for position in range(n_seated):
        r = int(state.slots[instance.first_slot + position].request)
        _tell_progress(state, instance, position, is_static)
        _lose_request(state, r, now_ps)
    while instance.n_waiting > 0:
        _lose_request(state, int(pop_waiting(state, instance)), now_ps)
    instance.n_running = instance.n_decoding = 0
    note_seat_change(instance)
    instance.kv_tokens = instance.held_tokens = 0
    instance.next_finish = NEVER
    instance.head = instance.tail = NO_REQUEST
    instance.free_blocks = state.engines[instance.engine].kv_blocks
    size = state.shared[0].block_size
    for phase in range(i * size, (i + 1) * size):
        state.phases[phase] = 0
    if state.shared[0].counts_tiers:
        for p in range(state.shared[0].n_tiers):
            state.tiers[tier_row(state, i) + p] = 0


@kernel
def _tell_progress(state, instance, position, is_static):
    """Write what a running request has streamed and computed, at the last iteration end, into its record."""
    slot = state.slots[instance.first_slot + position]
    request = state.requests[slot.request]
    if position < instance.n_decoding:
        streamed = request.output_tokens - (slot.finish_iteration - instance.iteration)
        request.generated = max(request.generated, streamed)  # static: a batch begins from nothing
        request.computed = computed_by(state, instance, slot)
    elif is_static and request.computed > 0 and request.generated < request.output_tokens:
        request.generated = request.output_tokens
        request.computed = request.prompt_tokens + request.output_tokens - 1


@kernel
def _lose_request(state, r, now_ps):
    control, request = centre(state).control[0], state.requests[r]
    if control.is_failing:
        request.computed = 0
        request.status, request.finish_ps = FAILED, now_ps
        if state.shared[0].keeps_tally:
            tally_end(state, r, 1.0)
        return
    count_recomputed(request)
    control.n_crash_retries += 1
    enqueue(state, r)


@kernel
def _end_crash(state, i, now_ps):
    """Let an instance go on as what it was, when the last crash that hit it is over."""
    instance, has_ended, is_down = state.instances[i], False, False
    for k in range(centre(state).control[0].next_fault):
        fault = centre(state).faults[k]
        if fault.has_hit and fault.instance == i:
            if fault.until_ps <= now_ps:
                fault.has_hit = 0
                has_ended = True
            else:
                is_down = True
    if is_down or not has_ended:
        return
    if instance.was_before_crash == DRAINING:
        leave_fleet(instance, now_ps)
    elif instance.was_before_crash == STARTING:
        start_instance(state, i, now_ps)
    else:
        instance.condition = ACTIVE


@kernel
def _lose_metrics(shared, instance, edge):
    """Let no refresh happen in [at, until), joined to the loss before it if no refresh lies in between."""
    interval_ps = max(shared.metrics_interval_ps, 1)
    next_refresh_ps = (instance.lost_until_ps + interval_ps - 1) // interval_ps * interval_ps
    if instance.lost_from_ps == NEVER or next_refresh_ps < edge.at_ps:
        instance.lost_from_ps, instance.lost_until_ps = edge.at_ps, edge.until_ps
    else:
        instance.lost_until_ps = max(instance.lost_until_ps, edge.until_ps)


@kernel
def _lose_link(state, edge):
    instance = state.instances[edge.instance]
    instance.link_down_until_ps = max(instance.link_down_until_ps, edge.until_ps)
    if centre(state).control[0].n_moves > 0:
        abort_moves_of(state, edge.instance, LOST_LINK, False)
