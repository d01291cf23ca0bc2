"""Readings of the cluster beside those of simulator/views.py; always the truth, whatever a router has seen."""

from servegym.simulator.calls import centre_at, state_at
from servegym.simulator.kernel import kernel
from servegym.simulator.state import ABSENT, DRAINING
from servegym.simulator.tiers import queued_row
from servegym.simulator.views import n_queues


@kernel
def is_given_up(cluster, i):
    """Return whether instance i drains or is absent; not while it starts or is down after a crash."""
    condition = cluster.instances[i].condition
    return condition in (DRAINING, ABSENT)


@kernel
def queued_blocks(cluster):
    """Return the KV blocks that all requests in the gateway's queues need for what they know, held ones left out."""
    queues, blocks = centre_at(cluster.shared[0].centre_pointer).queues, 0
    for q in range(n_queues(cluster)):
        blocks += queues[q].waiting_blocks
    return blocks


@kernel
def is_queued_by_tier(cluster):
    """Return whether queue p of the gateway holds the requests of tier p."""
    return centre_at(cluster.shared[0].centre_pointer).gateway[0].queue_by_tier != 0


@kernel
def n_queued_of_tier(cluster, p):
    """Return the requests of tier p in all queues of the gateway, held ones left out."""
    shared = cluster.shared[0]
    if not shared.counts_tiers:  # there is one tier
        return centre_at(shared.centre_pointer).gateway[0].n_queued
    state = state_at(shared.state_pointer)
    return state.tiers[queued_row(state) + p]
