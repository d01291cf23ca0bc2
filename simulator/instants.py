"""Instants at which more happens than direct arrivals: the gateway's rounds, faults, moves, clients, scaling.

Compiled apart and called by address, only when a run comes to need it. Source: docs/engine.md sections 2 and 10.
"""

from servegym.simulator.arrival import arrive
from servegym.simulator.calls import centre, state_at
from servegym.simulator.clients import play_retries
from servegym.simulator.control import next_event_ps, plan, play_control, play_ticks
from servegym.simulator.gateway import (
    go_on,
    has_ready_queue,
    is_holding,
    next_release_ps,
    play_release,
    play_round,
)
from servegym.simulator.kernel import kernel
from servegym.simulator.migration import has_ledger_room
from servegym.simulator.scaling import is_left_to_do, retire_finished
from servegym.simulator.state import (
    ARRIVING,
    ASKED,
    ENDING,
    HELD_FOREVER,
    LEDGER_FULL,
    NEVER,
    OK,
    RELEASING,
    RETRYING,
    TICKING,
)

PLAYED, ALL_PLAYED = 1, 0


def play(state_pointer, until_ps):
    """Play instants at or before until_ps, until the next arrival may be direct; ALL_PLAYED if none is left."""
    state = state_at(state_pointer)
    shared, gateway, control = state.shared[0], centre(state).gateway[0], centre(state).control[0]
    if shared.unplayed_ps >= 0:
        now_ps = shared.unplayed_ps
        shared.unplayed_ps = -1
        _play_rest(state, now_ps)
    while shared.error == OK:
        is_plain = gateway.is_direct and not is_holding(state)
        if is_plain and next_arrival_ps(state) < control.next_ps:
            return PLAYED
        if not _play_next(state, until_ps):
            break
    if control.n_draining > 0 and shared.error == OK:
        retire_finished(state, until_ps)
    return ALL_PLAYED


@kernel
def next_arrival_ps(state):
    """Return when the next request of the trace arrives, NEVER if all have."""
    r = state.shared[0].next_arrival
    return state.requests[r].arrival_ps if r < state.requests.shape[0] else NEVER


@kernel
def _take_arrival(state):
    r = state.shared[0].next_arrival
    state.shared[0].next_arrival = r + 1
    arrive(state, r)


@kernel
def _play_next(state, until_ps):
    """Play the next instant at which anything happens beside iterations; False if it lies beyond until_ps."""
    now_ps = _next_instant(state, until_ps)
    if now_ps > until_ps or now_ps == NEVER or state.shared[0].error != OK:
        return False
    if centre(state).control[0].next_rebalance_ps == now_ps and not has_ledger_room(state):
        state.shared[0].error = LEDGER_FULL  # the caller makes room and goes on
        return False
    state.shared[0].now_ps = now_ps
    if centre(state).control[0].next_ps <= now_ps:
        play_control(state, now_ps)
    _play_rest(state, now_ps)
    return True


@kernel
def _next_instant(state, until_ps):
    """Return the next instant of an arrival, a control event, a release or the hold timer; NEVER at the end."""
    gateway, control = centre(state).gateway[0], centre(state).control[0]
    now_ps = min(next_arrival_ps(state), control.next_ps)
    if until_ps == NEVER and now_ps < NEVER and not is_left_to_do(state, now_ps - 1):
        return NEVER
    if is_holding(state):
        timer_ps = gateway.last_round_ps + gateway.hold_timer_ps
        release_ps = next_release_ps(state, min(now_ps, timer_ps, until_ps))
        now_ps = min(now_ps, timer_ps, release_ps)
        if release_ps == NEVER and now_ps <= until_ps and is_stuck(state, now_ps):
            return NEVER
    return now_ps


@kernel
def is_stuck(state, instant_ps):
    """Return whether only timer and ticks go on, and have for too long by then; an error if a policy holds."""
    gateway, shared = centre(state).gateway[0], state.shared[0]
    if next_arrival_ps(state) < NEVER or next_event_ps(state) < NEVER:
        return False
    last_ps = gateway.last_event_ps
    for i in range(state.instances.shape[0]):
        if state.instances[i].event_ps != NEVER:
            return False
        last_ps = max(last_ps, state.instances[i].iteration_start_ps)
    is_over = instant_ps - last_ps >= gateway.max_hold_ps
    if is_over and (gateway.n_held > 0 or has_ready_queue(state)):
        shared.error = HELD_FOREVER
    return is_over


@kernel
def _play_rest(state, now_ps):
    """Play the rest of an instant: arrivals, clients' retries, the gateway's release, control ticks.

    Where an agent is asked it stops, and the next call goes on there: `part` is what comes after a round that waits.
    """
    shared, control, gateway = state.shared[0], centre(state).control[0], centre(state).gateway[0]
    is_control_due = control.next_ps <= now_ps
    go_on(state)
    if gateway.part == ARRIVING:
        while next_arrival_ps(state) == now_ps and shared.error == OK:
            _take_arrival(state)
            gateway.last_event_ps = now_ps
        _end_part(state)
    if gateway.part == RETRYING:
        if is_control_due and shared.error == OK:
            play_retries(state, now_ps)
        _end_part(state)
    if gateway.part == RELEASING and shared.error == OK:
        gateway.part = TICKING
        if is_holding(state):
            play_release(state)
    if gateway.part == TICKING:
        if is_control_due and shared.error == OK:
            play_ticks(state, now_ps, next_arrival_ps(state))
        _end_part(state)
        if gateway.part == ENDING and gateway.release_ps == now_ps and is_holding(state):
            play_round(state)  # a tick has made room
    if shared.error == ASKED:
        shared.unplayed_ps = now_ps
    else:
        gateway.part = ARRIVING
        if control.next_ps <= now_ps:
            plan(state)


@kernel
def _end_part(state):
    """Go on to the next part of the instant, unless the run stands still."""
    if state.shared[0].error == OK:
        centre(state).gateway[0].part += 1
