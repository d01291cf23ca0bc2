"""What "least loaded" may mean: the load signals that dispatch policies minimise."""

from servegym.simulator.kernel import kernel
from servegym.simulator.views import held_tokens, n_running, n_waiting, used_blocks, waiting_blocks

REQUESTS, BLOCKS, TOKENS = 0, 1, 2  # which signal load_at returns


@kernel
def load_at(cluster, i, signal):
    """Return one of the load signals of instance i."""
    if signal == REQUESTS:
        return requests_at(cluster, i)
    if signal == BLOCKS:
        return blocks_at(cluster, i)
    return tokens_at(cluster, i)


@kernel
def requests_at(cluster, i):
    """Return the requests at instance i, waiting or running."""
    return n_waiting(cluster, i) + n_running(cluster, i)


@kernel
def blocks_at(cluster, i):
    """Return the KV blocks that instance i uses, and those that its waiting requests will take."""
    return used_blocks(cluster, i) + waiting_blocks(cluster, i)


@kernel
def tokens_at(cluster, i):
    """Return the prompt and predicted output tokens of all requests at instance i."""
    return held_tokens(cluster, i)
