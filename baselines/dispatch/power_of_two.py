"""Power-of-d dispatch: sample d instances at random and take the least loaded of them; d = 2 by default.

Source: Mitzenmacher, The power of two choices in randomized load balancing (2001). One policy a load signal. Only the
sampled instances are looked at, so the cost does not grow with the fleet.
"""

from servegym.baselines.dispatch.signals import blocks_at, requests_at, tokens_at
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.random_stream import random_below
from servegym.simulator.views import HOLD, is_accepting, n_instances

MOST_SAMPLES = 64
CHOICES = (Param("d", 2, "instances", 1, MOST_SAMPLES),)


@kernel
def sample_instance(cluster, request, memory, rng, n_sampled):
    """Return a random accepting instance not among memory[:n_sampled], or HOLD (mutates memory, rng).

    Tries n times at random, then walks on from the last try, so that whoever accepts is found.
    """
    n = n_instances(cluster)
    i = random_below(rng, n)
    for attempt in range(2 * n):
        is_fresh = is_accepting(cluster, request, i)
        for k in range(n_sampled):
            is_fresh = is_fresh and memory[k] != i
        if is_fresh:
            memory[n_sampled] = i
            return i
        is_random = attempt < n and n_sampled * 2 < n
        i = random_below(rng, n) if is_random else (i + 1) % n
    return HOLD


@dispatch_policy(source="Mitzenmacher 2001, on requests", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest requests, waiting or running."""
    chosen, fewest = HOLD, 0
    for k in range(int(params[0])):
        i = sample_instance(cluster, request, memory, rng, k)
        if i == HOLD:
            break
        load = requests_at(cluster, i)
        if chosen == HOLD or load < fewest:
            chosen, fewest = i, load
    return chosen


@dispatch_policy(source="Mitzenmacher 2001, on KV blocks", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two_kv(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest KV blocks, used or waited for."""
    chosen, fewest = HOLD, 0
    for k in range(int(params[0])):
        i = sample_instance(cluster, request, memory, rng, k)
        if i == HOLD:
            break
        load = blocks_at(cluster, i)
        if chosen == HOLD or load < fewest:
            chosen, fewest = i, load
    return chosen


@dispatch_policy(source="Mitzenmacher 2001, on tokens", params=CHOICES, memory=MOST_SAMPLES)
def power_of_two_tokens(cluster, request, params, memory, rng):
    """Return the sampled instance with the fewest prompt and predicted tokens."""
    chosen, fewest = HOLD, 0
    for k in range(int(params[0])):
        i = sample_instance(cluster, request, memory, rng, k)
        if i == HOLD:
            break
        load = tokens_at(cluster, i)
        if chosen == HOLD or load < fewest:
            chosen, fewest = i, load
    return chosen
