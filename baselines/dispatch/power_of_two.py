"""Power-of-d dispatch: sample d instances at random and take the least loaded of them; d = 2 by default.

Source: Mitzenmacher, The power of two choices in randomized load balancing (2001). One policy a load signal. Only the
sampled instances are looked at, so the cost does not grow with the fleet.
"""

from servegym.baselines.dispatch.signals import BLOCKS, REQUESTS, TOKENS, load_at
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.random_stream import random_below
from servegym.simulator.views import HOLD, is_accepting, n_instances

MOST_SAMPLES = 64
MOST_TRIES = 32  # at random, before the remaining ones are counted
CHOICES = (Param("d", 2, "instances", 1, MOST_SAMPLES, is_whole=True),)


@kernel
def sample_instance(cluster, request, memory, rng, n_sampled):
    """Return a random accepting instance not among memory[:n_sampled], or HOLD (mutates memory, rng).

    Uniform over those left: draws again what was drawn before, and after many tries draws a rank among them.
    """
    n = n_instances(cluster)
    for _ in range(MOST_TRIES):
        i = random_below(rng, n)
        if is_left(cluster, request, memory, n_sampled, i):
            memory[n_sampled] = i
            return i
    n_left = 0
    for i in range(n):
        n_left += 1 if is_left(cluster, request, memory, n_sampled, i) else 0
    rank = random_below(rng, n_left) if n_left > 0 else 0
    for i in range(n):
        if is_left(cluster, request, memory, n_sampled, i):
            if rank == 0:
                memory[n_sampled] = i
                return i
            rank -= 1
    return HOLD


@kernel
def is_left(cluster, request, memory, n_sampled, i):
    """Return whether instance i accepts the request and is not among memory[:n_sampled]."""
    for k in range(n_sampled):
        if memory[k] == i:
            return False
    return is_accepting(cluster, request, i)


@kernel
def least_of_sample(cluster, request, params, memory, rng, signal):
    """Return the least loaded of params[0] sampled instances, or HOLD if none accepts; signal: see load_at."""
    n_sampled = 0
    while (
        n_sampled < params[0] and sample_instance(cluster, request, memory, rng, n_sampled) != HOLD
    ):
        n_sampled += 1
    # Loads are read when all are drawn: in a large fleet that fetches their instances from memory side by side.
    chosen, least = HOLD, 0
    for k in range(n_sampled):
        i = int(memory[k])
        load = load_at(cluster, i, signal)
        if chosen == HOLD or load < least:
            chosen, least = i, load
    return chosen


@dispatch_policy(source="Mitzenmacher 2001, on requests", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest requests, waiting or running."""
    return least_of_sample(cluster, request, params, memory, rng, REQUESTS)


@dispatch_policy(source="Mitzenmacher 2001, on KV blocks", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two_kv(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest KV blocks, used or waited for."""
    return least_of_sample(cluster, request, params, memory, rng, BLOCKS)


@dispatch_policy(source="Mitzenmacher 2001, on tokens", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two_tokens(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest prompt and predicted tokens."""
    return least_of_sample(cluster, request, params, memory, rng, TOKENS)
