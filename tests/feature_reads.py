"""Reading the accessors of outlook_views.py, and the features, of a simulation that stands still."""

import numpy as np

from servegym.baselines import features
from servegym.simulator import outlook_views as views
from servegym.simulator.gateway import view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.links import core_of
from servegym.simulator.state import NO_REQUEST, Request

READS = (
    "n_prefilling",
    "prefill_tokens_left",
    "predicted_tokens_left",
    "tokens_at_predicted_ends",
    "running_work",
    "waiting_prefill_tokens",
    "waiting_predicted_tokens",
    "waiting_work",
    "iteration_ms",
    "next_predicted_completion_s",
)


@kernel
def read_outlooks(all_state, router, blocks, out):
    """Fill out[i] with READS of every instance, then with the seconds until so many blocks are free: blocks[k]."""
    state = core_of(all_state)
    state.shared[0].router = router
    cluster = view_of(state)
    for i in range(state.instances.shape[0]):
        out[i, 0] = views.n_prefilling(cluster, i)
        out[i, 1] = views.prefill_tokens_left(cluster, i)
        out[i, 2] = views.predicted_tokens_left(cluster, i)
        out[i, 3] = views.tokens_at_predicted_ends(cluster, i)
        out[i, 4] = views.running_work(cluster, i)
        out[i, 5] = views.waiting_prefill_tokens(cluster, i)
        out[i, 6] = views.waiting_predicted_tokens(cluster, i)
        out[i, 7] = views.waiting_work(cluster, i)
        out[i, 8] = views.iteration_ms(cluster, i)
        out[i, 9] = views.next_predicted_completion_s(cluster, i)
        for k in range(blocks.shape[0]):
            out[i, 10 + k] = views.time_until_free_s(cluster, i, blocks[k])


def outlooks(simulation, router: int = 0, blocks=()) -> np.ndarray:
    """Return what read_outlooks finds, a row an instance."""
    blocks = np.array(blocks, np.int64)
    out = np.zeros((len(simulation.state.instances), len(READS) + len(blocks)))
    read_outlooks(simulation.state, router, blocks, out)
    return out


@kernel
def fill_all(all_state, router, r, instances, request, queues, cluster_row):
    """Fill every row of features; r: the request to decide about, or NO_REQUEST."""
    state = core_of(all_state)
    state.shared[0].router = router
    cluster, asked = view_of(state), Request(state.requests, np.int64(r))
    for i in range(instances.shape[0]):
        features.fill_instance(cluster, asked, i, instances[i])
    features.fill_request(cluster, asked, request)
    for q in range(queues.shape[0]):
        features.fill_queue(cluster, q, queues[q])
    features.fill_cluster(cluster, cluster_row)


def all_features(simulation, r: int = int(NO_REQUEST), router: int = 0) -> dict[str, np.ndarray]:
    """Return the rows of instances, request, queues and cluster; NaN where a kernel wrote nothing."""
    state = simulation.state
    rows = {
        "instances": np.full((len(state.instances), features.N_INSTANCE), np.nan, np.float32),
        "request": np.full(features.N_REQUEST, np.nan, np.float32),
        "queues": np.full((len(state.queues) - 1, features.N_QUEUE), np.nan, np.float32),
        "cluster": np.full(features.N_CLUSTER, np.nan, np.float32),
    }
    fill_all(state, router, r, *rows.values())
    return rows
