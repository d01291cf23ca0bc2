"""Observed metrics: a router's own placements since the last refresh.

Source: docs/engine.md section 9.
"""

from servegym.simulator.block_arithmetic import known_blocks
from servegym.simulator.calls import call_catch_up
from servegym.simulator.kernel import kernel
from servegym.simulator.predicted_work import kv_work, predicted_left
from servegym.simulator.refresh import last_refresh_ps, restart_view
from servegym.simulator.state import COUNTS
from servegym.simulator.tiers import view_row


@kernel
def record_placement(state, i, r, now_ps):
    """Store instance i's last refresh before it changes, and add the placement to the router's own view."""
    shared = state.shared[0]
    refresh_ps = last_refresh_ps(shared, state.instances[i], now_ps)
    if state.instances[i].seen_ps < refresh_ps:
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, refresh_ps, COUNTS)
    router = r % shared.n_routers if shared.n_routers > 1 else 0
    _add_placement(state, router, i, state.requests[r], refresh_ps)
    if shared.n_routers > 1:
        _add_placement(state, shared.n_routers, i, state.requests[r], refresh_ps)


@kernel
def _add_placement(state, router, i, request, refresh_ps):
    index = router * state.instances.shape[0] + i
    view = state.views[index]
    if view.since_ps != refresh_ps:
        restart_view(state, index, refresh_ps)
    blocks = known_blocks(state, request)
    if view.waiting == 0:
        view.first_blocks = blocks
    view.waiting += 1
    view.waiting_blocks += blocks
    view.held_tokens += request.prompt_tokens + request.predicted_tokens
    known = request.prompt_tokens + request.generated
    left = predicted_left(request, request.generated)
    view.waiting_prefill_tokens += known
    view.waiting_predicted_tokens += left
    view.waiting_work += kv_work(int(known), left)
    if state.shared[0].counts_tiers:
        state.tiers[view_row(state, index) + request.tier] += 1
