"""Moving waiting requests into seats, and passing over those that do not fit."""

import numpy as np

from servegym.simulator.calls import centre
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.outlook_follow import follow_seat, is_followed
from servegym.simulator.seats import note_seat_change
from servegym.simulator.state import NO_REQUEST
from servegym.simulator.waiting import pop_waiting, put_back, set_aside


@kernel
def has_seat(instance, engine):
    """Return whether another request may run; those that move keep their seats at both ends."""
    return instance.n_running + instance.n_parked < engine.max_num_seqs


@kernel
def seat_head(state, i, instance, blocks, now_ps):
    """Give the waiting head a seat and `blocks` blocks; return the request."""
    r = pop_waiting(state, instance)
    state.slots[instance.first_slot + instance.n_running].request = r
    instance.n_running += 1
    if is_followed(state, i):
        follow_seat(centre(state).outlooks[i], state.requests[r])
    note_seat_change(instance)
    instance.free_blocks -= blocks
    instance.has_admitted = 1
    if state.requests[r].admitted_ps < 0:
        state.requests[r].admitted_ps = now_ps
    return r


@kernel
def pass_over_head(state, instance, passed_over):
    """Set the waiting head aside, linked before `passed_over`; return it."""
    r = set_aside(state, instance)
    state.requests[r].next = passed_over
    return r


@cold_kernel
def return_passed_over(state, instance, passed_over):
    """Let all requests that were set aside wait again, in their old order."""
    while passed_over != NO_REQUEST:
        following = np.int64(state.requests[passed_over].next)
        put_back(state, instance, passed_over)
        passed_over = following
