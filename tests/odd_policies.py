"""Policies that misbehave, or that look at what they were given; found by their names, in other processes too."""

import numpy as np

from servegym.simulator.policy import Param, dispatch_policy, estimator, ordering_policy
from servegym.simulator.random_stream import random_below, random_float
from servegym.simulator.views import (
    HOLD,
    free_blocks,
    held_tokens,
    n_instances,
    n_running,
    n_waiting,
    now_s,
    prompt_tokens,
    used_blocks,
    waiting_blocks,
)


@dispatch_policy(
    source="test: a fixed answer",
    name="test-always",
    params=(Param("instance", 0, "index", -(2.0**62), 2.0**62),),
)
def always(cluster, request, params, memory, rng):
    """Return params[0], whatever it is."""
    return int(params[0])


@dispatch_policy(
    source="test: an answer that follows from the trace",
    name="test-first-prompt",
    params=(Param("instance", lambda trace: int(trace.prompt_tokens[0]) % 3, "index", 0, 2),),
)
def first_prompt(cluster, request, params, memory, rng):
    """Return params[0], which follows from the trace's first prompt."""
    return int(params[0])


@dispatch_policy(source="test: gives up in the middle", name="test-hold-third")
def hold_third(cluster, request, params, memory, rng):
    """Return HOLD for the third request."""
    return HOLD if request.index == 2 else 0


@dispatch_policy(source="test: reads where nothing is", name="test-looks-beyond")
def looks_beyond(cluster, request, params, memory, rng):
    """Return 0 after a look at the instance after the last."""
    return 0 * n_waiting(cluster, n_instances(cluster))


@ordering_policy(source="test: 0 / 0", name="test-nan-key")
def nan_key(request, now_ps, params):
    """Return the prompt's length, NaN for 7."""
    return np.nan if prompt_tokens(request) == 7 else float(prompt_tokens(request))


@dispatch_policy(
    source="test: writes all it can reach",
    name="test-greedy",
    memory=lambda config: 3 * config.instances,
    params=(Param("a", 11, "", 0, 100), Param("b", 12, "", 0, 100)),
)
def greedy(cluster, request, params, memory, rng):
    """Overwrite memory with its own size and parameters; instance 0."""
    for k in range(memory.shape[0]):
        memory[k] = params.shape[0] * 1000 + params[0] + params[1]
    return 0


@estimator(
    source="test: counts its calls in memory",
    name="test-counter",
    memory=2,
    params=(Param("step", 2, "tokens", 0, 100),),
)
def counter(request, params, memory, rng):
    """Return step times the number of calls so far; memory[1] is its size."""
    memory[0] += 1
    memory[1] = memory.shape[0] * 10 + params.shape[0]
    return memory[0] * params[0]


@estimator(source="test: one bad prediction after the other", name="test-bad-lengths")
def bad_lengths(request, params, memory, rng):
    """Return NaN, -inf, -5, 0, .4, .5, 1.5, 2.5, 1e30, inf in turn."""
    turn = request.index % 10
    if turn == 0:
        return np.nan
    if turn == 1:
        return -np.inf
    if turn == 2:
        return -5.0
    if turn == 3:
        return 0.0
    if turn == 4:
        return 0.4
    if turn == 5:
        return 0.5
    if turn == 6:
        return 1.5
    if turn == 7:
        return 2.5
    return 1e30 if turn == 8 else np.inf


@estimator(source="test: noisy", name="test-noisy")
def noisy(request, params, memory, rng):
    """Return a random length."""
    return 1.0 + 100.0 * random_float(rng)


N_SEEN = 8


@dispatch_policy(
    source="test: writes down what it sees",
    name="test-witness",
    memory=lambda config: N_SEEN * config.instances,
)
def witness(cluster, request, params, memory, rng):
    """Write every accessor's value for every instance to memory; a random instance."""
    for i in range(n_instances(cluster)):
        memory[N_SEEN * i + 0] = n_waiting(cluster, i)
        memory[N_SEEN * i + 1] = n_running(cluster, i)
        memory[N_SEEN * i + 2] = used_blocks(cluster, i)
        memory[N_SEEN * i + 3] = free_blocks(cluster, i)
        memory[N_SEEN * i + 4] = waiting_blocks(cluster, i)
        memory[N_SEEN * i + 5] = held_tokens(cluster, i)
        memory[N_SEEN * i + 6] = now_s(cluster)
        memory[N_SEEN * i + 7] = prompt_tokens(request)
    return random_below(rng, n_instances(cluster))
