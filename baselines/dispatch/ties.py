"""Ties: where a scan over instances begins, so that they are shared instead of going to instance 0, or a draw."""

from servegym.simulator.kernel import kernel
from servegym.simulator.random_stream import random_below
from servegym.simulator.views import n_instances


@kernel
def rotation(memory, cluster):
    """Return a start that moves on by one at every call (mutates memory[0], the next start)."""
    start = int(memory[0])
    memory[0] = start + 1 if start + 1 < n_instances(cluster) else 0
    return start


@kernel
def rotated(start, offset, n):
    """Return the instance that lies offset places behind start, round n instances (0 <= start, offset < n)."""
    i = start + offset
    return i if i < n else i - n


@kernel
def takes_turn(rng, n_equal):
    """Return whether the n-th of equals replaces the one chosen before: each gets chance 1/n (mutates rng)."""
    return n_equal == 1 or random_below(rng, n_equal) == 0
