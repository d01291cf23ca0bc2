"""Where a scan over instances begins, so that ties are shared instead of going to instance 0."""

from servegym.simulator.kernel import kernel
from servegym.simulator.views import n_instances


@kernel
def rotation(memory, cluster):
    """Return a start that moves on by one at every call (mutates memory[0], the next start)."""
    start = int(memory[0])
    memory[0] = start + 1 if start + 1 < n_instances(cluster) else 0
    return start
