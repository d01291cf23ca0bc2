"""The most urgent queue that can be served at all."""

from servegym.simulator.kernel import kernel
from servegym.simulator.views import HOLD, is_ready, n_queues


@kernel
def first_ready(cluster):
    """Return the ready queue of least index (the most urgent tier), HOLD if none is ready."""
    for q in range(n_queues(cluster)):
        if is_ready(cluster, q):
            return q
    return HOLD
