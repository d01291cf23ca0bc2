"""A request ends: its completion, and how policies that learn from completions are shown them.

Instances are advanced lazily, so completions come out of order: they wait in a heap by (finish, trace index) until
somebody is asked who has to have seen them. Source: docs/engine.md section 11.
"""

import numpy as np

from servegym.simulator.calls import call_catch_up, call_observe, centre
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import (
    COUNTS,
    ESTIMATION,
    FINISHED,
    NO_REQUEST,
    REMAINING,
    Request,
)
from servegym.simulator.tally import tally_end
from servegym.simulator.tiers import count_tier
from servegym.simulator.waiting import merge


@kernel
def complete(state, i, instance, r, now_ps):
    """Finish request r, which has left its seat and given back its blocks."""
    request = state.requests[r]
    request.status, request.finish_ps = FINISHED, now_ps
    request.generated = request.output_tokens
    instance.held_tokens -= request.prompt_tokens + request.predicted_tokens
    instance.released_ps = now_ps
    count_tier(state, i, request, -1)
    if state.shared[0].keeps_tally:
        tally_end(state, r, 1.0)
    if state.shared[0].n_observing > 0:
        request.next = request.right = NO_REQUEST
        control = centre(state).control[0]
        control.completed = merge(state, np.int64(control.completed), r, True)


@cold_kernel
def show_completions(state):
    """Bring every instance to the present and show all completions so far, in order (mutates policies' memory)."""
    shared, control = state.shared[0], centre(state).control[0]
    for i in range(state.instances.shape[0]):
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, shared.now_ps, COUNTS)
    while control.completed != NO_REQUEST:
        r = np.int64(control.completed)
        request = state.requests[r]
        control.completed = merge(state, np.int64(request.next), np.int64(request.right), True)
        _show(state, ESTIMATION, r)
        _show(state, REMAINING, r)


@kernel
def _show(state, role, r):
    policy = state.policies[role]
    if policy.observe_address != 0:
        params = state.params[policy.params_begin : policy.params_end]
        memory = state.memory[policy.memory_begin : policy.memory_end]
        request = Request(state.requests, np.int64(r))
        call_observe(
            policy.observe_address,
            request,
            np.int64(state.requests[r].output_tokens),
            params,
            memory,
        )
