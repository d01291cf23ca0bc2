"""Policies made for tests that exist twice: compiled, under the decorators of simulator/policy.py, and as plain Python.

The plain ones, by name in REFERENCE_POLICIES, decide for the reference. No policy asks for what is an error.
"""

from collections.abc import Callable
from typing import Any

from reference.cluster import ReferenceCluster
from reference.model import Request
from reference.options import ACCEPT as ACCEPTED
from reference.options import REJECT as REJECTED
from reference.what_if import WhatIf

from servegym.simulator.policy import (
    admission_policy,
    dispatch_policy,
    estimator,
    migration_policy,
    queue_policy,
    scaling_policy,
)
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    REJECT,
    context_tokens,
    head_blocks,
    held_tokens,
    is_accepting,
    is_active,
    is_ready,
    least_urgent_waiting,
    marginal_latency_s,
    n_decoding,
    n_instances,
    n_queues,
    n_running,
    n_waiting,
    now_s,
    predicted_finish_s,
    prompt_tokens,
    queue_length,
    running_request,
    tier,
    tier_count,
    used_blocks,
    waiting_blocks,
)

MANY_BLOCKS = 2**30


# Dispatch.


@dispatch_policy(
    name="test-signals", source="test: the least of many signals among the instances that accept"
)
def play_signals(cluster, request, params, memory, rng):
    """Return the accepting instance with the least mixture of everything a router sees."""
    chosen, least = HOLD, 0
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        signal = 3 * head_blocks(cluster, i) + 5 * tier_count(cluster, i, tier(request))
        signal += used_blocks(cluster, i) + 2 * waiting_blocks(cluster, i)
        signal += 2 * n_running(cluster, i) + 3 * n_waiting(cluster, i)
        signal += (held_tokens(cluster, i) + context_tokens(cluster, i)) // 16
        if chosen == HOLD or signal < least:
            chosen, least = i, signal
    return chosen


@dispatch_policy(
    name="test-moods", source="test: HOLD in some 4 ms of every 12, else the first that accepts"
)
def play_moods(cluster, request, params, memory, rng):
    """Return the first accepting instance, or HOLD as time and request will."""
    if (int(now_s(cluster) * 250) + request.index) % 3 == 0:
        return HOLD
    for k in range(n_instances(cluster)):
        i = (request.index + k) % n_instances(cluster)
        if is_accepting(cluster, request, i):
            return i
    return HOLD


@dispatch_policy(name="test-soonest", source="test: the soonest finish by what-if")
def play_soonest(cluster, request, params, memory, rng):
    """Return the accepting instance on which the request would finish first."""
    chosen, least = HOLD, 0.0
    for i in range(n_instances(cluster)):
        if is_accepting(cluster, request, i):
            finish = predicted_finish_s(cluster, request, i)
            if chosen == HOLD or finish < least - 1e-9:
                chosen, least = i, finish
    return chosen


@dispatch_policy(name="test-marginal", source="test: the least marginal latency by what-if")
def play_marginal(cluster, request, params, memory, rng):
    """Return the accepting instance where the request costs everybody least."""
    chosen, least = HOLD, 0.0
    for i in range(n_instances(cluster)):
        if is_accepting(cluster, request, i):
            cost = marginal_latency_s(cluster, request, i, request.index % 2 == 1)
            if chosen == HOLD or cost < least - 1e-9:
                chosen, least = i, cost
    return chosen


def _accepting(cluster: ReferenceCluster, request: Request) -> list[int]:
    return [i for i in range(len(cluster.engines)) if cluster.is_accepting(request, i)]


def _signals(cluster: ReferenceCluster, request: Request) -> int | None:
    def signal(i: int) -> int:
        seen, more = cluster.observe(request, i), cluster.details(request, i)
        total = 3 * more.head_blocks + 5 * more.tier_counts.get(request.tier, 0)
        total += seen.used_blocks + 2 * seen.waiting_blocks
        total += 2 * seen.n_running + 3 * seen.n_waiting
        return total + (seen.held_tokens + more.context_tokens) // 16

    return min(_accepting(cluster, request), key=signal, default=None)


def _moods(cluster: ReferenceCluster, request: Request) -> int | None:
    if (int(cluster.now / 1e12 * 250) + request.index) % 3 == 0:
        return None
    n = len(cluster.engines)
    accepting = _accepting(cluster, request)
    order = [(request.index + k) % n for k in range(n)]
    return next((i for i in order if i in accepting), None)


def _soonest(cluster: ReferenceCluster, request: Request) -> int | None:
    what_if = WhatIf(cluster)
    key = {i: what_if.finish_ps(request, i) for i in _accepting(cluster, request)}
    return _first_least({i: value / 1e12 for i, value in key.items()})


def _marginal(cluster: ReferenceCluster, request: Request) -> int | None:
    what_if = WhatIf(cluster)
    by_tier = request.index % 2 == 1
    accepting = _accepting(cluster, request)
    cost = {i: what_if.marginal_latency_ps(request, i, by_tier) / 1e12 for i in accepting}
    return _first_least(cost)


def _first_least(values: dict[int, float]) -> int | None:
    chosen = None
    for i, value in values.items():
        if chosen is None or value < values[chosen] - 1e-9:
            chosen = i
    return chosen


# Admission, with a memory: how often it is asked must agree, too.


@admission_policy(
    name="test-gate", source="test: by load, tier and how often it was asked", memory=1
)
def play_gate(cluster, request, params, memory, rng):
    """Return HOLD at every fifth question and under load, REJECT for tier 3 under load."""
    memory[0] += 1
    load = 0
    for i in range(n_instances(cluster)):
        load += n_running(cluster, i) + n_waiting(cluster, i)
    if tier(request) == 3 and load > 6:
        return REJECT
    if int(memory[0]) % 5 == 0 or load > 10:
        return HOLD
    return ACCEPT


class _Gate:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, cluster: ReferenceCluster, request: Request) -> str | None:
        self.asked += 1
        seen = [cluster.observe(request, i) for i in range(len(cluster.engines))]
        load = sum(s.n_running + s.n_waiting for s in seen)
        if request.tier == 3 and load > 6:
            return REJECTED
        return None if self.asked % 5 == 0 or load > 10 else ACCEPTED


# Queues.


@queue_policy(name="test-longest", source="test: the longest ready queue")
def play_longest(cluster, params, memory, rng):
    """Return the longest ready queue, the last of several."""
    chosen, most = HOLD, 0
    for q in range(n_queues(cluster)):
        if is_ready(cluster, q) and queue_length(cluster, q) >= most:
            chosen, most = q, queue_length(cluster, q)
    return chosen


@queue_policy(name="test-turns", source="test: turns, ready or not, and HOLD", memory=1)
def play_turns(cluster, params, memory, rng):
    """Return the next non-empty queue from a place that moves on; HOLD every fourth time or under load."""
    memory[0] += 1
    load = 0
    for i in range(n_instances(cluster)):
        load += n_running(cluster, i)
    if int(memory[0]) % 4 == 0 or load > 14:
        return HOLD
    for k in range(n_queues(cluster)):
        q = (int(memory[0]) + k) % n_queues(cluster)
        if queue_length(cluster, q) > 0:
            return q
    return HOLD


def _longest(cluster: ReferenceCluster) -> int | None:
    queues = cluster.gateway.queues
    ready = [q for q in range(len(queues)) if cluster.gateway.is_ready(q)]
    return max(ready, key=lambda q: (len(queues[q]), q), default=None)


class _Turns:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, cluster: ReferenceCluster) -> int | None:
        self.asked += 1
        load = sum(cluster.observe(None, i).n_running for i in range(len(cluster.engines)))
        if self.asked % 4 == 0 or load > 14:
            return None
        queues = cluster.gateway.queues
        order = [(self.asked + k) % len(queues) for k in range(len(queues))]
        return next((q for q in order if queues[q]), None)


# Moves.


@migration_policy(
    name="test-shift",
    source="test: the first decoder and the least urgent waiter of every instance",
    memory=1,
)
def play_shift(cluster, moves, params, memory, rng):
    """Write moves to an instance that changes from tick to tick, good and bad ones."""
    memory[0] += 1
    n, m = 0, n_instances(cluster)
    for i in range(m):
        j = (i + 1 + int(memory[0]) // 2) % m
        first = last = -1
        for k in range(n_decoding(cluster, i)):
            r = running_request(cluster, i, k).index
            first = r if first < 0 or r < first else first
            last = max(last, r)
        waiter = least_urgent_waiting(cluster, i, MANY_BLOCKS)
        for r in (first, last, waiter if int(memory[0]) % 3 == 0 else -1):
            if r >= 0:
                moves[n, 0], moves[n, 1], moves[n, 2] = i, j, r
                n += 1
        if first >= 0:  # not there, unless j == i
            moves[n, 0], moves[n, 1], moves[n, 2] = j, i, first
            n += 1
    return n


class _Shift:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, cluster: ReferenceCluster) -> list[tuple[int, int, Request]]:
        self.asked += 1
        moves, m = [], len(cluster.engines)
        for i, engine in enumerate(cluster.engines):
            j = (i + 1 + self.asked // 2) % m
            decoding = sorted((r for r in engine.running if engine.decodes(r)), key=_index)
            chosen = decoding[:1] + decoding[-1:]
            if self.asked % 3 == 0 and engine.waiting:
                chosen.append(min(engine.waiting, key=lambda r, e=engine: _urgency(e, r)))
            moves += [(i, j, r) for r in chosen]
            moves += [(j, i, r) for r in decoding[:1]]
        return moves


def _index(request: Request) -> int:
    return request.index


def _urgency(engine: Any, r: Request) -> tuple[int, ...]:
    return (-r.tier, engine.blocks_for(r.known), r.arrival_ps, r.index)


# Scaling.


@scaling_policy(name="test-size", source="test: by requests an active instance")
def play_size(cluster, params, memory, rng):
    """Return +1 above three requests an active instance, queues included, -1 below one."""
    load, active = 0, 0
    for i in range(n_instances(cluster)):
        load += n_running(cluster, i) + n_waiting(cluster, i)
        active += 1 if is_active(cluster, i) else 0
    for q in range(n_queues(cluster)):
        load += queue_length(cluster, q)
    if load > 3 * active:
        return 1
    return -1 if load < 2 * active else 0


def _size(cluster: ReferenceCluster) -> int:
    seen = [cluster.observe(None, i) for i in range(len(cluster.engines))]
    load = sum(s.n_running + s.n_waiting for s in seen)
    load += sum(len(queue) for queue in cluster.gateway.queues)
    active = cluster.fleet.states.count("active")
    return 1 if load > 3 * active else -1 if load < 2 * active else 0


# Estimation.


def _remember(request, output_tokens, params, memory):
    """Add a completion, with more weight to later ones."""
    memory[0] = 0.5 * memory[0] + output_tokens
    memory[1] = 0.5 * memory[1] + 1.0


@estimator(
    name="test-learns",
    source="test: weighted mean of the outputs seen",
    memory=2,
    observe=_remember,
)
def play_learns(request, params, memory, rng):
    """Return a mean of the outputs seen, later ones counting more."""
    return memory[0] / memory[1] + prompt_tokens(request) % 3 if memory[1] > 0 else 20.5


class _Learns:
    def __init__(self) -> None:
        self.memory = [0.0, 0.0]

    def observe(self, request: Request) -> None:
        """See a completion."""
        _remember(None, request.output_tokens, None, self.memory)

    def __call__(self, request: Request) -> float:
        """Predict."""
        if self.memory[1] == 0:
            return 20.5
        return self.memory[0] / self.memory[1] + request.prompt_tokens % 3


REFERENCE_POLICIES: dict[str, Callable[[], Any]] = {
    "test-signals": lambda: _signals,
    "test-moods": lambda: _moods,
    "test-soonest": lambda: _soonest,
    "test-marginal": lambda: _marginal,
    "test-gate": _Gate,
    "test-longest": lambda: _longest,
    "test-turns": _Turns,
    "test-shift": _Shift,
    "test-size": lambda: _size,
    "test-learns": _Learns,
}
