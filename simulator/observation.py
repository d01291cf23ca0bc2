"""Observed metrics: an instance stores what routers will see when its clock passes a refresh.

Source: docs/engine.md section 9. Refreshes stand at the multiples of metrics_interval_s, before arrivals.
"""

from servegym.simulator.calls import call_catch_up
from servegym.simulator.kernel import kernel
from servegym.simulator.state import COUNTS
from servegym.simulator.waiting import known_blocks


@kernel
def store_observed(state, i, refresh_ps):
    """Store what routers see of instance i, which stands at the refresh, until the next one."""
    instance = state.instances[i]
    instance.seen_ps = refresh_ps
    instance.seen_waiting = instance.n_waiting
    instance.seen_running = instance.n_running
    instance.seen_used_blocks = state.engines[instance.engine].kv_blocks - instance.free_blocks
    instance.seen_waiting_blocks = instance.waiting_blocks
    instance.seen_held_tokens = instance.held_tokens


@kernel
def record_placement(state, i, r, now_ps):
    """Store instance i's last refresh before it changes, and add the placement to the router's own view."""
    shared = state.shared[0]
    refresh_ps = now_ps // shared.metrics_interval_ps * shared.metrics_interval_ps
    if state.instances[i].seen_ps < refresh_ps:
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, refresh_ps, COUNTS)
    view, request = state.views[shared.router * state.instances.shape[0] + i], state.requests[r]
    if view.since_ps != refresh_ps:
        view.since_ps = refresh_ps
        view.waiting = view.waiting_blocks = view.held_tokens = 0
    view.waiting += 1
    view.waiting_blocks += known_blocks(state, request)
    view.held_tokens += request.prompt_tokens + request.predicted_tokens
