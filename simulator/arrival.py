"""An arrival: predict its length, let the dispatch policy choose an instance, place it there.

Push mode: every request is placed at its arrival (docs/engine.md sections 2 and 8). A policy returns an index, which
is checked here; it cannot raise.
"""

import numpy as np

from servegym.simulator.calls import call_dispatch, call_predict
from servegym.simulator.iteration import advance
from servegym.simulator.iteration_time import round_half_even
from servegym.simulator.kernel import kernel
from servegym.simulator.observation import record_placement
from servegym.simulator.state import (
    BAD_INSTANCE,
    ESTIMATOR_STREAM,
    HELD_IN_PUSH_MODE,
    NEVER,
    NO_INSTANCE,
    OK,
    POLICY_STREAM,
    REJECTED,
    STATIC,
    Cluster,
    Request,
)
from servegym.simulator.stretch import cut_at_arrival
from servegym.simulator.views import fits_engine, is_accepting
from servegym.simulator.waiting import append_waiting

LONGEST_PREDICTION = 2.0**30


@kernel
def arrive(state, r):
    """Decide and carry out everything about request r's arrival."""
    cluster = state.shared[0]
    cluster.now_ps = state.requests[r].arrival_ps
    cluster.router = r % cluster.n_routers if cluster.n_routers > 1 else 0
    predict(state, r)
    if not fits_fleet(state, r):
        state.requests[r].status = REJECTED
        state.requests[r].finish_ps = cluster.now_ps
        return
    i = choose_instance(state, r)
    if cluster.error != OK:
        return
    if i == NO_INSTANCE:
        cluster.error = HELD_IN_PUSH_MODE
    elif not can_place(state, i, r):
        cluster.error, cluster.error_instance = BAD_INSTANCE, i
    else:
        place(state, i, r)


@kernel
def predict(state, r):
    """Store the estimator's prediction, whole and >= 1; others count as bad."""
    cluster = state.shared[0]
    params = state.params[cluster.order_params : cluster.estimator_params]
    memory = state.memory[cluster.dispatch_memory : cluster.estimator_memory]
    rng = state.streams[ESTIMATOR_STREAM : ESTIMATOR_STREAM + 1]
    tokens = call_predict(
        cluster.estimator_address, Request(state.requests, np.int64(r)), params, memory, rng
    )
    if not 1.0 <= tokens <= LONGEST_PREDICTION:
        cluster.n_bad_predictions += 1
        tokens = LONGEST_PREDICTION if tokens > LONGEST_PREDICTION else 1.0
    state.requests[r].predicted_tokens = round_half_even(tokens)


@kernel
def fits_fleet(state, r):
    """Return whether some instance could ever hold the request."""
    for e in range(state.engines.shape[0]):
        if fits_engine(Request(state.requests, np.int64(r)), state.engines[e]):
            return True
    return False


@kernel
def can_place(state, i, r):
    """Return whether i is an instance of the fleet that accepts the request."""
    is_index = 0 <= i < state.instances.shape[0]
    return is_index and is_accepting(state, Request(state.requests, np.int64(r)), i)


@kernel
def choose_instance(state, r):
    """Ask the dispatch policy."""
    cluster = state.shared[0]
    params = state.params[: cluster.dispatch_params]
    memory = state.memory[: cluster.dispatch_memory]
    rng = state.streams[POLICY_STREAM : POLICY_STREAM + 1]
    view = Cluster(state.shared, state.engines, state.instances, state.views)
    request = Request(state.requests, np.int64(r))
    return call_dispatch(cluster.dispatch_address, view, request, params, memory, rng)


@kernel
def place(state, i, r):
    """Let request r wait at instance i from now on (mutates the queue; may cut the stretch in flight)."""
    cluster, instance = state.shared[0], state.instances[i]
    if cluster.metrics_interval_ps > 0:
        record_placement(state, i, r, cluster.now_ps)
    if instance.event_ps <= cluster.now_ps:
        advance(state, i, cluster.now_ps)
    request = state.requests[r]
    request.instance = i
    append_waiting(state, instance, r)
    instance.held_tokens += request.prompt_tokens + request.predicted_tokens
    engine = state.engines[instance.engine]
    if instance.stretch_end_ps != NEVER:
        if instance.stretch > 1:
            cut_at_arrival(state, instance, engine, r, cluster.now_ps)
    elif instance.wake_ps == NEVER or engine.kind == STATIC:
        instance.wake_ps = cluster.now_ps
        instance.event_ps = cluster.now_ps + 1
