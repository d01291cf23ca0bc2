"""The event loop: arrivals in trace order; instances follow lazily, since they touch each other only here.

Most runs are nothing but direct arrivals; whatever else happens is played instant by instant (instants.py), called
by address. Source: docs/engine.md section 2.
"""

from typing import Any

from servegym.simulator.arrival import arrive_directly
from servegym.simulator.calls import call_catch_up, call_play, point_to
from servegym.simulator.gateway import is_holding
from servegym.simulator.kernel import kernel
from servegym.simulator.state import (
    BLOCKS,
    COUNTS,
    NEEDS_INSTANTS,
    NEVER,
    OK,
    Centre,
    Copies,
    Core,
)


@kernel
def run_until(all_state, until_ps):
    """Process every event at or before until_ps, then bring all instances to until_ps; return the error code.

    Iterations that would start at until_ps start with the next call.
    """
    state = core_of(all_state)
    shared, above = state.shared[0], centre_of(all_state)
    gateway, control = above.gateway[0], above.control[0]
    shared.state_pointer, shared.centre_pointer = point_to(state), point_to(above)
    shared.copies_pointer = point_to(copies_of(all_state))
    requests: Any = state.requests  # REQUEST[N]
    n_requests = requests.shape[0]
    while shared.error == OK:
        r = shared.next_arrival
        arrival_ps = requests[r].arrival_ps if r < n_requests else NEVER
        is_plain = shared.unplayed_ps < 0 and gateway.n_queued + gateway.n_held == 0
        if is_plain and gateway.is_direct and arrival_ps < control.next_ps:
            if arrival_ps > until_ps:
                break
            shared.next_arrival = r + 1
            arrive_directly(state, r)
            if is_holding(state):
                shared.unplayed_ps = arrival_ps
        elif is_plain and gateway.is_direct and control.next_ps == NEVER:
            break
        elif shared.play_address == 0:
            return NEEDS_INSTANTS  # the caller has it compiled and goes on
        elif not call_play(shared.play_address, shared.state_pointer, until_ps):
            break
    for i in range(state.instances.shape[0]):
        if shared.error != OK:
            break
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, until_ps, COUNTS)
    if shared.error == OK:
        shared.now_ps = until_ps if until_ps < NEVER else last_event_ps(state, gateway)
    return shared.error


@kernel
def core_of(state):
    """Return the part of a State that instances are made of."""
    return Core(
        state.shared,
        state.engines,
        state.instances,
        state.requests,
        state.slots,
        state.phases,
        state.views,
        state.params,
        state.memory,
        state.streams,
        state.policies,
        state.tiers,
    )


@kernel
def centre_of(state):
    """Return the part of a State that stands above the instances."""
    return Centre(
        state.gateway,
        state.queues,
        state.control,
        state.moves,
        state.ordered,
        state.ledger,
        state.faults,
        state.timers,
        state.timeouts_ps,
        state.outlooks,
    )


@kernel
def copies_of(state):
    """Return the part of a State that a what-if plays with."""
    return Copies(
        state.copied_shared,
        state.copied_instances,
        state.copied_slots,
        state.copied_phases,
        state.copied_requests,
    )


@kernel
def last_event_ps(state, gateway):
    """Return when the last arrival, iteration end or other event happened."""
    n = state.requests.shape[0]
    last = max(state.requests[n - 1].arrival_ps if n else 0, gateway.last_event_ps)
    for i in range(state.instances.shape[0]):
        last = max(last, state.instances[i].iteration_start_ps)
    return last


@kernel
def measure(all_state, i, now_ps):
    """Bring instance i's counts and blocks to now_ps (for readers outside a run)."""
    state = core_of(all_state)
    shared = state.shared[0]
    shared.state_pointer, shared.centre_pointer = (
        point_to(state),
        point_to(centre_of(all_state)),
    )
    shared.copies_pointer = point_to(copies_of(all_state))
    call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, BLOCKS)
