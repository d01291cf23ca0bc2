"""The event loop: arrivals in trace order; instances follow lazily, since they touch each other only through them.

Source: docs/engine.md section 2. Whatever acts on several instances at once (migration, scaling, faults) will be one
more kind of event here.
"""

from servegym.simulator.arrival import arrive
from servegym.simulator.calls import call_catch_up, point_to
from servegym.simulator.kernel import kernel
from servegym.simulator.state import BLOCKS, COUNTS, NEVER, OK


@kernel
def run_until(state, until_ps):
    """Process every arrival at or before until_ps, then bring all instances to until_ps; return the error code.

    Iterations that would start at until_ps start with the next call.
    """
    cluster = state.shared[0]
    cluster.state_pointer = point_to(state)
    n_requests = state.requests.shape[0]
    while cluster.next_arrival < n_requests and cluster.error == OK:
        r = cluster.next_arrival
        if state.requests[r].arrival_ps > until_ps:
            break
        arrive(state, r)
        cluster.next_arrival = r + 1
    for i in range(state.instances.shape[0]):
        if cluster.error != OK:
            break
        call_catch_up(cluster.catch_up_address, cluster.state_pointer, i, until_ps, COUNTS)
    if cluster.error == OK and until_ps < NEVER:
        cluster.now_ps = until_ps
    elif cluster.error == OK:
        cluster.now_ps = last_event_ps(state)
    return cluster.error


@kernel
def last_event_ps(state):
    """Return when the last arrival or the last iteration end happened."""
    last = state.requests[state.requests.shape[0] - 1].arrival_ps if state.requests.shape[0] else 0
    for i in range(state.instances.shape[0]):
        last = max(last, state.instances[i].iteration_start_ps)
    return last


@kernel
def measure(state, i, now_ps):
    """Bring instance i's counts and blocks to now_ps (for readers outside a run)."""
    cluster = state.shared[0]
    cluster.state_pointer = point_to(state)
    call_catch_up(cluster.catch_up_address, cluster.state_pointer, i, now_ps, BLOCKS)
