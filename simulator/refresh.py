"""Refreshes of observed metrics: when an instance's last one was, and what it stores then.

Source: docs/engine.md section 9. Refreshes stand at the multiples of metrics_interval_s, before arrivals; while an
instance's metrics are lost (section 14) the last one before holds.
"""

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.outlook import store_outlook
from servegym.simulator.seats import computed_by
from servegym.simulator.state import NEVER, NO_REQUEST, STATIC
from servegym.simulator.tiers import seen_row, tier_row, view_row


@kernel
def last_refresh_ps(shared, instance, now_ps):
    """Return the instant of the last refresh of an instance at or before now."""
    interval_ps = shared.metrics_interval_ps
    refresh_ps = now_ps // interval_ps * interval_ps
    if (
        shared.n_lost_metrics > 0
        and instance.lost_from_ps <= refresh_ps
        and refresh_ps < instance.lost_until_ps
    ):
        refresh_ps = (instance.lost_from_ps - 1) // interval_ps * interval_ps
    return refresh_ps


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
    instance.seen_context_tokens = context_of(state, instance, refresh_ps)
    instance.seen_head_blocks = 0
    if instance.head != NO_REQUEST:
        head = state.requests[instance.head]
        instance.seen_head_blocks = blocks_for(state.shared[0], head.prompt_tokens + head.generated)
    if state.shared[0].counts_tiers:
        for p in range(state.shared[0].n_tiers):
            state.tiers[seen_row(state, i) + p] = state.tiers[tier_row(state, i) + p]
    if state.shared[0].keeps_outlook:
        store_outlook(state, i, refresh_ps)


@cold_kernel
def restart_view(state, view, refresh_ps):
    """Forget a router's own placements on an instance: a refresh has seen them."""
    record = state.views[view]
    record.since_ps = refresh_ps
    record.waiting = record.waiting_blocks = record.held_tokens = record.first_blocks = 0
    record.waiting_prefill_tokens = record.waiting_predicted_tokens = record.waiting_work = 0
    if state.shared[0].counts_tiers:
        for p in range(state.shared[0].n_tiers):
            state.tiers[view_row(state, view) + p] = 0


@kernel
def context_of(state, instance, now_ps):
    """Return the tokens in KV of an instance's running requests, those of the iteration in flight not included."""
    total = 0
    if instance.stretch_end_ps != NEVER and instance.iteration_end_ps <= now_ps:
        total += instance.n_decoding  # it ends now, inside a stretch
    if state.engines[instance.engine].kind == STATIC:
        return total + _static_context(state, instance)
    total += instance.kv_tokens - instance.n_decoding
    for p in range(instance.n_decoding, instance.n_running):
        total += state.requests[state.slots[instance.first_slot + p].request].computed
    return total


@kernel
def done_tokens(request):
    """Return the tokens in KV of a request of a static batch that has no tokens left."""
    if request.generated == request.output_tokens:  # one token; or all were streamed before a crash
        return request.computed
    return request.prompt_tokens + request.output_tokens - 1


@kernel
def _static_context(state, instance):
    """Return the same of a static batch: behind its decoders sit those that are done, or not begun."""
    total = 0
    for p in range(instance.n_running):
        slot = state.slots[instance.first_slot + p]
        request = state.requests[slot.request]
        if p < instance.n_decoding:
            total += computed_by(state, instance, slot)
        elif request.computed > 0:
            total += done_tokens(request)
    return total
