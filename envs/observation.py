"""Observations: the columns of the feature tables that an environment shows, one after the other.

In the order of the names of their parts, which is that of gymnasium's Dict: cluster, instances, queues, request. What
the features are: baselines/features.py.
"""

import numpy as np

from servegym.baselines.features import (
    N_INSTANCE,
    fill_cluster,
    fill_instance,
    fill_queue,
    fill_request,
)
from servegym.simulator.gateway import view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.state import ANY_ROUTER, Request
from servegym.simulator.views import n_instances, n_queues

PARTS = ("cluster", "instances", "queues", "request")
CLUSTER, INSTANCES, QUEUES, REQUEST = range(4)


@kernel
def observe(table, e, episode, state):
    """Write the observation of sub-environment e (mutates table.observations[e])."""
    cluster, seen, row = view_of(state), table.observations[e], table.row
    request = Request(state.requests, np.int64(state.shared[0].asked_request))
    router = state.shared[0].router
    if request.index < 0:
        state.shared[0].router = ANY_ROUTER
    fill_cluster(cluster, row)
    n = _copy(seen, 0, row, table.features[CLUSTER])
    for i in range(n_instances(cluster)):
        if table.is_whole[0]:
            fill_instance(cluster, request, i, seen[n : n + N_INSTANCE])
            n += N_INSTANCE
        else:
            fill_instance(cluster, request, i, row)
            n = _copy(seen, n, row, table.features[INSTANCES])
    for q in range(n_queues(cluster)):
        fill_queue(cluster, q, row)
        n = _copy(seen, n, row, table.features[QUEUES])
    fill_request(cluster, request, row)
    _copy(seen, n, row, table.features[REQUEST])
    state.shared[0].router = router


@kernel
def _copy(seen, n, row, columns):
    """Copy the chosen columns of a row behind the first n of `seen`; return how many there are then."""
    for k in range(columns.shape[0]):
        if columns[k] < 0:
            break
        seen[n] = row[columns[k]]
        n += 1
    return n
