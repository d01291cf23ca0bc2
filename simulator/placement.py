"""Placing a request at an instance: the one way in, for arrivals and for whoever leaves the gateway."""

from servegym.simulator.calls import call_catch_up
from servegym.simulator.kernel import kernel
from servegym.simulator.observation import record_placement
from servegym.simulator.state import AT_INSTANCE, COUNTS, NEVER, STATIC
from servegym.simulator.stretch import cut_at_arrival
from servegym.simulator.tiers import count_tier
from servegym.simulator.waiting import append_waiting
from servegym.simulator.what_if_snapshot import note_placement


@kernel
def place(state, i, r):
    """Let request r wait at instance i from now on, as its router knows (mutates the queue; may cut the stretch)."""
    shared = state.shared[0]
    if shared.metrics_interval_ps > 0:
        record_placement(state, i, r, shared.now_ps)
    if shared.snapshot_interval_ps > 0:
        note_placement(state, i, r)
    join_waiting(state, i, r)


@kernel
def join_waiting(state, i, r):
    """Let request r wait at instance i from now on."""
    shared, instance = state.shared[0], state.instances[i]
    if instance.event_ps <= shared.now_ps:
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, shared.now_ps, COUNTS)
    request = state.requests[r]
    request.instance, request.place = i, AT_INSTANCE
    count_tier(state, i, request, 1)
    join_queue(state, instance, r)


@kernel
def join_queue(state, instance, r):
    """Let request r wait at an instance that stands at now; one that could admit it next looks at it."""
    shared, request = state.shared[0], state.requests[r]
    append_waiting(state, instance, r)
    instance.held_tokens += request.prompt_tokens + request.predicted_tokens
    engine = state.engines[instance.engine]
    if instance.stretch_end_ps != NEVER:
        if instance.stretch > 1:
            cut_at_arrival(state, instance, engine, r, shared.now_ps)
    elif instance.wake_ps == NEVER or engine.kind == STATIC:
        instance.wake_ps = shared.now_ps
        instance.event_ps = shared.now_ps + 1
