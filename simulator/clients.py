"""Clients: their time limits, the cancellations that follow, and their asking again.

Timers form a binary heap by time, then limits before attempts, then trace index; a request has at most one, and the
limit of one that has ended stays until it is due or on top. Source: docs/engine.md section 15.
"""

import numpy as np

from servegym.simulator.calls import call_catch_up, centre
from servegym.simulator.gateway import drop_request, submit
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.migration import drop_parked
from servegym.simulator.preemption import unseat
from servegym.simulator.seats import find_seat
from servegym.simulator.state import (
    AT_GATEWAY,
    AT_INSTANCE,
    CANCELLED,
    COUNTS,
    DEADLINE,
    HELD,
    LATEST_PS,
    NEVER,
    NO_INSTANCE,
    OK,
    OVERDUE,
    PARKED,
    RETRY,
    STATIC,
    UNFINISHED,
    WITH_CLIENT,
)
from servegym.simulator.stretch import interrupt, settle
from servegym.simulator.tally import tally_end, tally_retry
from servegym.simulator.tiers import count_tier
from servegym.simulator.waiting import remove_waiting


@cold_kernel
def set_deadline(state, r, now_ps):
    """Set the time limit of a request that arrives now, if its tier has one."""
    timeout_ps = centre(state).timeouts_ps[state.requests[r].tier]
    if timeout_ps != NEVER:
        _push_timer(state, now_ps + min(timeout_ps, LATEST_PS - now_ps), r, DEADLINE)


@cold_kernel
def cancel_due(state, now_ps):
    """Cancel the requests whose limit is up, by trace index."""
    control = centre(state).control[0]
    while control.n_timers > 0 and state.shared[0].error == OK:
        first = centre(state).timers[0]
        if first.at_ps > now_ps or first.kind == RETRY:
            break
        r, kind = np.int64(first.request), first.kind
        _pop_timer(state)
        _give_up(state, r, kind, now_ps)


@cold_kernel
def play_retries(state, now_ps):
    """Let the clients ask again whose wait is over, by trace index: their requests begin from nothing."""
    control = centre(state).control[0]
    while control.n_timers > 0 and state.shared[0].error == OK:
        first = centre(state).timers[0]
        if first.at_ps > now_ps or first.kind != RETRY:
            break
        r = np.int64(first.request)
        _pop_timer(state)
        control.n_retries -= 1
        control.n_client_retries += 1
        request = state.requests[r]
        if state.shared[0].keeps_tally:
            tally_retry(state, r)
        request.status, request.instance = UNFINISHED, NO_INSTANCE
        request.finish_ps = request.first_token_ps = -1
        request.generated = request.computed = 0
        request.attempt += 1
        centre(state).gateway[0].last_event_ps = now_ps
        set_deadline(state, r, now_ps)
        submit(state, r)


@kernel
def _give_up(state, r, kind, now_ps):
    """Cancel a request, at once or at the end of the iteration that it is in."""
    shared, gateway, request = state.shared[0], centre(state).gateway[0], state.requests[r]
    if request.status == UNFINISHED and request.place == AT_INSTANCE:
        i = request.instance
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, COUNTS)
    if request.status != UNFINISHED:
        return
    if kind == DEADLINE:
        gateway.release_ps = gateway.last_event_ps = now_ps
    if request.place == AT_GATEWAY or request.place == HELD:
        drop_request(state, r)
    elif request.place == PARKED:
        drop_parked(state, r)
    elif not _leave_instance(state, r, now_ps):
        return
    request.computed = 0
    request.status, request.finish_ps = CANCELLED, now_ps
    if shared.keeps_tally:
        tally_end(state, r, 1.0)
    gateway.release_ps = gateway.last_event_ps = now_ps
    _plan_retry(state, r, now_ps)


@kernel
def _leave_instance(state, r, now_ps):
    """Take a request off its instance; False if an iteration holds it: until that ends, or its batch for good."""
    request = state.requests[r]
    i = int(request.instance)
    instance = state.instances[i]
    interrupt(state, i, now_ps)
    position = find_seat(state, instance, r)
    if position < 0:
        remove_waiting(state, instance, r)
    elif state.engines[instance.engine].kind == STATIC:
        return False
    elif instance.stretch_end_ps != NEVER:
        _push_timer(state, instance.iteration_end_ps, r, OVERDUE)
        return False
    else:
        unseat(state, i, instance, position, 0)
    instance.held_tokens -= request.prompt_tokens + request.predicted_tokens
    count_tier(state, i, request, -1)
    settle(instance, now_ps)
    return True


@kernel
def _plan_retry(state, r, now_ps):
    """Let the client ask again after a while, if it still does and the trace has not ended by then."""
    control, request = centre(state).control[0], state.requests[r]
    if request.attempt >= control.client_retries:
        return
    wait_ps = (
        control.retry_backoff_ps * 2.0**request.attempt
    )  # a float: 2**100 is too much for int64
    if wait_ps > LATEST_PS - now_ps or now_ps + int(wait_ps) >= control.horizon_ps:
        return
    request.place = WITH_CLIENT
    control.n_retries += 1
    _push_timer(state, now_ps + control.retry_backoff_ps * (1 << int(request.attempt)), r, RETRY)


@cold_kernel
def hasten_overdue(state, now_ps):
    """Cancel those overdue requests now that wait at the gateway again: the iteration that held them is lost."""
    n, has_changed = centre(state).control[0].n_timers, False
    for k in range(n):
        timer = centre(state).timers[k]
        if timer.kind == OVERDUE and state.requests[timer.request].place == AT_GATEWAY:
            timer.at_ps = now_ps
            has_changed = True
    if has_changed:
        for k in range(1, n):
            _sift_up(state, k)


@kernel
def forget_ended(state):
    """Drop the limits of ended requests on top of the heap; return when the first timer is due, NEVER without one."""
    control = centre(state).control[0]
    while control.n_timers > 0:
        first = centre(state).timers[0]
        if first.kind == RETRY or state.requests[first.request].status == UNFINISHED:
            return first.at_ps
        _pop_timer(state)
    return NEVER


@cold_kernel
def _push_timer(state, at_ps, r, kind):
    control = centre(state).control[0]
    timer = centre(state).timers[control.n_timers]
    timer.at_ps, timer.request, timer.kind = at_ps, r, kind
    control.n_timers += 1
    control.next_ps = min(control.next_ps, at_ps)
    _sift_up(state, control.n_timers - 1)


@kernel
def _sift_up(state, k):
    while k > 0:
        parent = (k - 1) // 2
        if not _is_before(centre(state).timers[k], centre(state).timers[parent]):
            break
        _swap(centre(state).timers[k], centre(state).timers[parent])
        k = parent


@cold_kernel
def _pop_timer(state):
    control = centre(state).control[0]
    control.n_timers -= 1
    n, k = control.n_timers, 0
    _swap(centre(state).timers[0], centre(state).timers[n])
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and _is_before(
            centre(state).timers[child + 1], centre(state).timers[child]
        ):
            child += 1
        if not _is_before(centre(state).timers[child], centre(state).timers[k]):
            break
        _swap(centre(state).timers[child], centre(state).timers[k])
        k = child


@kernel
def _is_before(a, b):
    if a.at_ps != b.at_ps:
        return a.at_ps < b.at_ps
    if (a.kind == RETRY) != (b.kind == RETRY):
        return b.kind == RETRY
    return a.request < b.request


@kernel
def _swap(a, b):
    a.at_ps, b.at_ps = b.at_ps, a.at_ps
    a.request, b.request = b.request, a.request
    a.kind, b.kind = b.kind, a.kind
