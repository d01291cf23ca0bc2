"""Features: what a learned policy is told about an instance, a request, a queue and the cluster, as rows of float32.

A value is a quantity / scale, clipped into [0, LIMIT]: always finite, about 1 on a busy cluster. Only what a router may
see: observed metrics, predicted lengths. Instances: the list of a feasibility study of learned dispatch, in its order,
then whether the instance accepts the request. What depends on a request is 0 without one (index NO_REQUEST).
Kernels write a whole row in the order of its table and allocate nothing.
"""

from dataclasses import dataclass

from servegym.simulator.calls import centre_at, state_at
from servegym.simulator.kernel import kernel
from servegym.simulator.outlook_views import (
    decode_ms,
    iterations_until_free,
    outlook_of,
    prefill_s,
    queue_predicted_tokens,
    queue_prefill_tokens,
    waiting_predicted_tokens,
    waiting_prefill_tokens,
    waiting_work,
)
from servegym.simulator.views import (
    arrival_s,
    block_size,
    context_tokens,
    is_accepting,
    is_active,
    is_ready,
    known_blocks_of,
    kv_blocks,
    max_num_seqs,
    n_instances,
    n_running,
    n_waiting,
    now_s,
    predicted_tokens,
    prompt_tokens,
    queue_head,
    queue_length,
    tier,
    used_blocks,
    waiting_blocks,
    watermark_blocks,
)

LIMIT = 10.0


@dataclass(frozen=True)
class Feature:
    """One column of a row: value = quantity in `unit` / scale, in [0, LIMIT]."""

    name: str
    unit: str
    scale: float
    meaning: str


INSTANCE_FEATURES = (
    Feature("running", "share of max_num_seqs", 1, "requests that run"),
    Feature("waiting", "requests", 16, "that wait at the instance"),
    Feature("prefilling", "requests", 4, "that run and whose prefill has not ended"),
    Feature("prefill_tokens", "tokens", 2048, "that these have still to compute"),
    Feature("kv_used", "share of the KV blocks", 1, "in use"),
    Feature("kv_waiting", "share of the KV blocks", 1, "that the waiting need for what they know"),
    Feature("tokens_left", "tokens", 10_000, "predicted output left of the running"),
    Feature("kv_at_ends", "share of the KV tokens", 1, "of the running at their predicted ends"),
    Feature("kv_short", "share of the KV blocks", 0.25, "lacking for the request behind who waits"),
    Feature("free_in", "s", 10, "until these are free, by predicted completions"),
    Feature("next_end_in", "s", 5, "to the next predicted completion"),
    Feature("iteration", "ms", 50, "of an iteration of those that decode"),
    Feature("context", "tokens", 40_000, "that the running have in KV"),
    Feature("waiting_prefill", "s", 2, "to prefill what waits"),
    Feature("waiting_output", "tokens", 4_000, "predicted output of the waiting"),
    Feature("kv_with_request", "share of the KV blocks", 1, "used, waited for and of the request"),
    Feature("running_work", "KV tokens", 1e7, "to be read by all decodes left of the running"),
    Feature("waiting_work", "KV tokens", 5e6, "the same of the waiting"),
    Feature("accepts", "truth value", 1, "the instance may be given the request now"),
)

REQUEST_FEATURES = (
    Feature("has_request", "truth value", 1, "there is a request to decide about"),
    Feature("prompt", "tokens", 2_000, "of the prompt"),
    Feature("predicted_output", "tokens", 500, "of output, as predicted"),
    Feature("kv_need", "share of the first instance's KV blocks", 0.05, "for what it knows"),
    Feature("tier", "tier", 4, "0 is the most urgent"),
    Feature("waited", "s", 5, "since its arrival"),
)

QUEUE_FEATURES = (
    Feature("length", "requests", 32, "in the queue"),
    Feature("head_prompt", "tokens", 2_000, "of the first one's prompt"),
    Feature("head_output", "tokens", 500, "of the first one's output, as predicted"),
    Feature("head_tier", "tier", 4, "of the first one"),
    Feature("head_waited", "s", 5, "since the first one's arrival"),
    Feature("ready", "truth value", 1, "some instance accepts the first one"),
    Feature("prefill_tokens", "tokens", 40_000, "to prefill of all in the queue"),
    Feature("output_tokens", "tokens", 10_000, "predicted output of all in the queue"),
)

CLUSTER_FEATURES = (
    Feature("mean_requests", "requests an active instance", 32, "waiting or running there"),
    Feature("gateway", "requests", 32, "in queues or held by the admission policy"),
    Feature("active", "share of the instances", 1, "that take requests"),
    Feature("kv_used", "share of the active instances' KV blocks", 1, "in use"),
    Feature("since_arrival", "s", 1, "since the last arrival, or the one before if that is now"),
)

N_INSTANCE, N_REQUEST = len(INSTANCE_FEATURES), len(REQUEST_FEATURES)
N_QUEUE, N_CLUSTER = len(QUEUE_FEATURES), len(CLUSTER_FEATURES)

# Reciprocals, for the kernels.
PER_INSTANCE = tuple(1.0 / feature.scale for feature in INSTANCE_FEATURES)
PER_REQUEST = tuple(1.0 / feature.scale for feature in REQUEST_FEATURES)
PER_QUEUE = tuple(1.0 / feature.scale for feature in QUEUE_FEATURES)
PER_CLUSTER = tuple(1.0 / feature.scale for feature in CLUSTER_FEATURES)


@kernel
def clipped(value):
    """Return the value, a number that is not NaN, clipped into [0, LIMIT]."""
    return min(max(value, 0.0), LIMIT)


@kernel
def fill_instance(cluster, request, i, row):
    """Write INSTANCE_FEATURES of instance i into row, float32[N_INSTANCE]; all as the router sees them."""
    has_request, per = request.index >= 0, PER_INSTANCE
    used = used_blocks(cluster, i)  # first: brings the instance up to date for all that follows
    outlook = outlook_of(cluster, i)
    blocks, wanted = kv_blocks(cluster, i), waiting_blocks(cluster, i)
    ms = decode_ms(cluster, i, outlook)
    share = 1.0 / blocks
    lacking, free_in, need, accepts = 0, 0.0, 0, False
    if has_request:
        need = known_blocks_of(cluster, request)
        lacking = max(0, wanted + need + watermark_blocks(cluster, i) - (blocks - used))
        if lacking > 0:
            free_in = iterations_until_free(cluster, i, lacking) * ms * 1e-3
        accepts = is_accepting(cluster, request, i)
    to_prefill = waiting_prefill_tokens(cluster, i)
    row[0] = clipped(n_running(cluster, i) / max_num_seqs(cluster, i) * per[0])
    row[1] = clipped(n_waiting(cluster, i) * per[1])
    row[2] = clipped(outlook.n_prefilling * per[2])
    row[3] = clipped(outlook.prefill_tokens * per[3])
    row[4] = clipped(used * share * per[4])
    row[5] = clipped(wanted * share * per[5])
    row[6] = clipped(outlook.tokens_left * per[6])
    row[7] = clipped(outlook.end_tokens * share / block_size(cluster) * per[7])
    row[8] = clipped(lacking * share * per[8])
    row[9] = clipped(free_in * per[9])
    row[10] = clipped(outlook.next_left * ms * 1e-3 * per[10])
    row[11] = clipped(ms * per[11])
    row[12] = clipped(context_tokens(cluster, i) * per[12])
    row[13] = clipped(prefill_s(cluster, i, to_prefill) * per[13]) if to_prefill > 0 else 0.0
    row[14] = clipped(waiting_predicted_tokens(cluster, i) * per[14])
    row[15] = clipped((used + wanted + need) * share * per[15]) if has_request else 0.0
    row[16] = clipped(outlook.work * per[16])
    row[17] = clipped(waiting_work(cluster, i) * per[17])
    row[18] = 1.0 if accepts else 0.0


@kernel
def fill_request(cluster, request, row):
    """Write REQUEST_FEATURES into row, float32[N_REQUEST]; zeros without a request."""
    if request.index < 0:
        for k in range(N_REQUEST):
            row[k] = 0.0
        return
    row[0] = 1.0
    row[1] = clipped(prompt_tokens(request) * PER_REQUEST[1])
    row[2] = clipped(predicted_tokens(request) * PER_REQUEST[2])
    need = known_blocks_of(cluster, request)
    row[3] = clipped(need / kv_blocks(cluster, 0) * PER_REQUEST[3])
    row[4] = clipped(tier(request) * PER_REQUEST[4])
    row[5] = clipped((now_s(cluster) - arrival_s(request)) * PER_REQUEST[5])


@kernel
def fill_queue(cluster, q, row):
    """Write QUEUE_FEATURES of queue q of the gateway into row, float32[N_QUEUE]; zeros for one that is empty."""
    if queue_length(cluster, q) == 0:
        for k in range(N_QUEUE):
            row[k] = 0.0
        return
    head = queue_head(cluster, q)
    row[0] = clipped(queue_length(cluster, q) * PER_QUEUE[0])
    row[1] = clipped(prompt_tokens(head) * PER_QUEUE[1])
    row[2] = clipped(predicted_tokens(head) * PER_QUEUE[2])
    row[3] = clipped(tier(head) * PER_QUEUE[3])
    row[4] = clipped((now_s(cluster) - arrival_s(head)) * PER_QUEUE[4])
    row[5] = 1.0 if is_ready(cluster, q) else 0.0
    row[6] = clipped(queue_prefill_tokens(cluster, q) * PER_QUEUE[6])
    row[7] = clipped(queue_predicted_tokens(cluster, q) * PER_QUEUE[7])


@kernel
def fill_cluster(cluster, row):
    """Write CLUSTER_FEATURES into row, float32[N_CLUSTER]; instances as the router sees them."""
    n_active, requests, used, total = 0, 0, 0, 0
    for i in range(n_instances(cluster)):
        if is_active(cluster, i):
            n_active += 1
            used += used_blocks(cluster, i)
            total += kv_blocks(cluster, i)
            requests += n_waiting(cluster, i) + n_running(cluster, i)
    row[0] = clipped(requests / max(1, n_active) * PER_CLUSTER[0])
    row[1] = clipped(gateway_requests(cluster) * PER_CLUSTER[1])
    row[2] = clipped(n_active / n_instances(cluster) * PER_CLUSTER[2])
    row[3] = clipped(used / max(1, total) * PER_CLUSTER[3])
    row[4] = clipped(since_arrival_s(cluster) * PER_CLUSTER[4])


@kernel
def gateway_requests(cluster):
    """Return the requests that wait at the gateway, in queues or held by the admission policy."""
    gateway = centre_at(cluster.shared[0].centre_pointer).gateway[0]
    return gateway.n_queued + gateway.n_held


@kernel
def since_arrival_s(cluster):
    """Return the seconds since the last arrival; for one that arrives now, since the one before it; 0 before any."""
    shared = cluster.shared[0]
    requests, last = state_at(shared.state_pointer).requests, shared.next_arrival - 1
    if last > 0 and requests[last].arrival_ps == shared.now_ps:
        last -= 1
    if last < 0:
        return 0.0
    return (shared.now_ps - requests[last].arrival_ps) / 1e12
