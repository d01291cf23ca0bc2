"""What a policy may see: accessors that bring an instance up to date before they read it.

With metrics_interval_s > 0 a router sees each instance as it stood at the last refresh, plus the router's own
placements since; with 0 everybody sees the truth. Source: docs/engine.md section 9.
"""

from servegym.simulator.calls import call_catch_up
from servegym.simulator.kernel import kernel
from servegym.simulator.state import BAD_READ, BLOCKS, COUNTS, NO_INSTANCE

HOLD = NO_INSTANCE


@kernel
def n_instances(cluster):
    """Return the number of instances of the fleet."""
    return cluster.instances.shape[0]


@kernel
def now_s(cluster):
    """Return the instant being decided, seconds."""
    return cluster.shared[0].now_ps / 1e12


@kernel
def checked(cluster, i):
    """Return i if it is an instance; else stop the run with an error that names i, and return 0."""
    if 0 <= i < cluster.instances.shape[0]:
        return i
    cluster.shared[0].error, cluster.shared[0].error_instance = BAD_READ, i
    return 0


@kernel
def n_waiting(cluster, i):
    """Return the requests waiting at instance i, preempted ones included."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = _observe(cluster, i)
        return cluster.instances[i].seen_waiting + cluster.views[view].waiting
    return _counted(cluster, i).n_waiting


@kernel
def n_running(cluster, i):
    """Return the requests running at instance i."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        _observe(cluster, i)
        return cluster.instances[i].seen_running
    return _counted(cluster, i).n_running


@kernel
def used_blocks(cluster, i):
    """Return the KV blocks in use at instance i, those of the iteration in flight included."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        _observe(cluster, i)
        return cluster.instances[i].seen_used_blocks
    return kv_blocks(cluster, i) - _measured(cluster, i).free_blocks


@kernel
def free_blocks(cluster, i):
    """Return the free KV blocks of instance i."""
    return kv_blocks(cluster, i) - used_blocks(cluster, i)


@kernel
def kv_blocks(cluster, i):
    """Return the KV blocks that instance i has in all."""
    i = checked(cluster, i)
    return cluster.engines[cluster.instances[i].engine].kv_blocks


@kernel
def waiting_blocks(cluster, i):
    """Return the blocks that the waiting requests of instance i need for what they know (prompt and streamed)."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = _observe(cluster, i)
        return cluster.instances[i].seen_waiting_blocks + cluster.views[view].waiting_blocks
    return _counted(cluster, i).waiting_blocks


@kernel
def held_tokens(cluster, i):
    """Return the prompt and predicted output tokens of all requests at instance i, waiting or running."""
    i = checked(cluster, i)
    if cluster.shared[0].metrics_interval_ps > 0:
        view = _observe(cluster, i)
        return cluster.instances[i].seen_held_tokens + cluster.views[view].held_tokens
    return _counted(cluster, i).held_tokens


@kernel
def is_accepting(cluster, request, i):
    """Return whether instance i is active and the request can ever fit there."""
    instance = cluster.instances[checked(cluster, i)]
    engine = cluster.engines[instance.engine]
    return instance.is_active == 1 and fits_engine(request, engine)


@kernel
def fits_engine(request, engine):
    """Return whether an instance with this configuration could ever hold the request."""
    record = request.records[request.index]
    longest = record.prompt_tokens + record.output_tokens - 1
    return record.need_blocks <= engine.largest_need and longest <= engine.largest_tokens


@kernel
def prompt_tokens(request):
    """Return the request's prompt tokens."""
    return request.records[request.index].prompt_tokens


@kernel
def predicted_tokens(request):
    """Return the estimator's prediction of the request's output tokens."""
    return request.records[request.index].predicted_tokens


@kernel
def output_tokens(request):
    """Return the true output tokens; only for policies declared oracle=True."""
    return request.records[request.index].output_tokens


@kernel
def tier(request):
    """Return the request's tier, 0 the most urgent."""
    return request.records[request.index].tier


@kernel
def arrival_s(request):
    """Return the request's arrival, seconds."""
    return request.records[request.index].arrival_ps / 1e12


@kernel
def _counted(cluster, i):
    """Return instance i with all counts of now."""
    instance = cluster.instances[i]
    if instance.event_ps <= cluster.shared[0].now_ps:
        _catch_up(cluster, i, cluster.shared[0].now_ps, COUNTS)
    return instance


@kernel
def _measured(cluster, i):
    """Return instance i with counts and blocks of now."""
    instance = cluster.instances[i]
    if (
        instance.event_ps <= cluster.shared[0].now_ps
        or instance.iteration_end_ps < cluster.shared[0].now_ps
    ):
        _catch_up(cluster, i, cluster.shared[0].now_ps, BLOCKS)
    return instance


@kernel
def _observe(cluster, i):
    """Bring instance i's last refresh up to date; return the index of this router's view of it."""
    shared = cluster.shared[0]
    refresh_ps = shared.now_ps // shared.metrics_interval_ps * shared.metrics_interval_ps
    if cluster.instances[i].seen_ps < refresh_ps:
        _catch_up(cluster, i, refresh_ps, COUNTS)
    index = shared.router * cluster.instances.shape[0] + i
    view = cluster.views[index]
    if view.since_ps != refresh_ps:
        view.since_ps = refresh_ps
        view.waiting = view.waiting_blocks = view.held_tokens = 0
    return index


@kernel
def _catch_up(cluster, i, until_ps, depth):
    """Bring instance i to until_ps, by address: the engine is linked into no policy."""
    shared = cluster.shared[0]
    call_catch_up(shared.catch_up_address, shared.state_pointer, i, until_ps, depth)
