"""The event loop: arrivals in trace order; instances follow lazily, since they touch each other only here.

Most runs are nothing but direct arrivals; whatever else happens is played instant by instant (instants.py), called
by address. Source: docs/engine.md section 2.
"""

from typing import Any

from servegym.simulator.arrival import arrive_directly
from servegym.simulator.calls import call_catch_up, call_play, centre, state_at
from servegym.simulator.gateway import is_holding
from servegym.simulator.kernel import kernel
from servegym.simulator.state import ASKED, COUNTS, NEEDS_INSTANTS, NEVER, NO_REQUEST, OK


def run(state_pointer, until_ps):
    """Process every event at or before until_ps, then bring all instances to until_ps; return the error code.

    Iterations that would start at until_ps start with the next call. ASKED: a decision waits for an agent; the next
    call goes on with its answer, at the same place.
    """
    state = state_at(state_pointer)
    shared, gateway, control = state.shared[0], centre(state).gateway[0], centre(state).control[0]
    requests: Any = state.requests  # REQUEST[N]
    n_requests = requests.shape[0]
    while shared.error == OK:
        is_awaited = gateway.awaited != NO_REQUEST
        r = gateway.awaited if is_awaited else shared.next_arrival
        arrival_ps = requests[r].arrival_ps if r < n_requests else NEVER
        is_plain = shared.unplayed_ps < 0 and gateway.n_queued + gateway.n_held == 0
        if is_plain and gateway.is_direct and arrival_ps < control.next_ps:
            if arrival_ps > until_ps:
                break
            arrive_directly(state, r, is_awaited)
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
    code = shared.error
    if code == ASKED:
        shared.error = OK  # instances can be read while the run waits
    return code


@kernel
def last_event_ps(state, gateway):
    """Return when the last arrival, iteration end or other event happened."""
    n = state.requests.shape[0]
    last = max(state.requests[n - 1].arrival_ps if n else 0, gateway.last_event_ps)
    for i in range(state.instances.shape[0]):
        last = max(last, state.instances[i].iteration_start_ps)
    return last
