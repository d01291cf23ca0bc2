"""Plain twins of the policies that weigh instances by freeness: N-tier's and Llumnix's dispatch, scaling by freeness.

F = (M - virtual usage) / max(1, running); virtual usage: used blocks + those of the first waiting request + H_p for
each tier present + 10 * M while draining. H_p = floor(M * share of p), shares peak * exp(-decay * p / (K - 1)), linear
peak * (1 - p / (K - 1)), or a vector; none with one tier. Llumnix's freeness counts all that wait and holds back a
reserve of all blocks but some tokens'. Sources: Beyond Binary Priorities; Llumnix (OSDI '24). Moves: headroom_moves.py.
"""

import math
from typing import Any

from reference.cluster import ReferenceCluster
from reference.engine import Observation
from reference.model import Request, blocks_for

EXPONENTIAL, LINEAR, VECTOR, RESERVE = 0, 1, 2, 3
BINARY, BY_TIER = 1, 2  # Llumnix's `headroom`
LONGEST_VECTOR = 10


class Headroom:
    """The blocks that an instance keeps back for the tiers present on it; parameters as the policies name them."""

    def __init__(
        self,
        n_tiers: int,
        headroom: int = 1,
        form: int = EXPONENTIAL,
        peak: float = 0.20,
        decay: float = 2.5,
        reserve_tokens: int = 1600,
        **vector: float,
    ) -> None:
        self.is_on, self.n_tiers, self.form = headroom == 1 and n_tiers > 1, n_tiers, form
        self.peak, self.decay, self.reserve_tokens = peak, decay, reserve_tokens
        self.vector = [vector.get(f"h{p}", 0.0) for p in range(LONGEST_VECTOR)]

    def share(self, p: int) -> float:
        """Return tier p's part of an instance's blocks."""
        if self.form == VECTOR:
            return self.vector[p]
        place = p / (self.n_tiers - 1)
        return self.peak * (1 - place if self.form == LINEAR else math.exp(-self.decay * place))

    def of_tier(self, cluster: ReferenceCluster, i: int, p: int) -> int:
        """Return H_p of instance i; in the reserve form all blocks but some tokens' for tier 0, else none."""
        spec = cluster.engines[i].spec
        if not self.is_on:
            return 0
        if self.form == RESERVE:
            spare = blocks_for(self.reserve_tokens, spec.block_size)
            return max(0, spec.kv_blocks - spare) if p == 0 else 0
        return math.floor(spec.kv_blocks * self.share(p))

    def released(self, cluster: ReferenceCluster, i: int, p: int) -> int:
        """Return what is kept back no longer on instance i without one request of tier p."""
        is_last = cluster.details(None, i).tier_counts.get(p, 0) == 1
        return self.of_tier(cluster, i, p) if is_last else 0

    def added(self, cluster: ReferenceCluster, i: int, p: int) -> int:
        """Return what is kept back besides on instance i with one more request of tier p."""
        is_first = cluster.details(None, i).tier_counts.get(p, 0) == 0
        return self.of_tier(cluster, i, p) if is_first else 0

    def of(self, cluster: ReferenceCluster, asker: Request | None, i: int) -> int:
        """Return the sum over the tiers that are seen on instance i."""
        counts = cluster.details(asker, i).tier_counts
        return sum(self.of_tier(cluster, i, p) for p, count in counts.items() if count > 0)


def virtual_free(
    cluster: ReferenceCluster, asker: Request | None, i: int, headroom: Headroom
) -> int:
    """Return M - virtual usage."""
    n_blocks = cluster.engines[i].spec.kv_blocks
    usage = cluster.observe(asker, i).used_blocks + cluster.details(asker, i).head_blocks
    usage += headroom.of(cluster, asker, i)
    if is_draining(cluster, i):
        usage += 10 * n_blocks
    return n_blocks - usage


def freeness(cluster: ReferenceCluster, asker: Request | None, i: int, headroom: Headroom) -> float:
    """Return F as the asker's router sees it; for None, as all routers together."""
    free = virtual_free(cluster, asker, i, headroom)
    return free / max(1, cluster.observe(asker, i).n_running)


def is_draining(cluster: ReferenceCluster, i: int) -> bool:
    """Return whether instance i only finishes what it has."""
    return cluster.fleet.states[i] == "draining"


class Reserve:
    """Llumnix's reserve for tier 0, which is a class of its own where there are other tiers."""

    def __init__(self, n_tiers: int, headroom: int = BINARY, **params: Any) -> None:
        self.has_class = n_tiers > 1
        self.is_on = headroom == BINARY and self.has_class
        self.by_tier = Headroom(n_tiers, int(headroom == BY_TIER), **params)  # instead of it

    def is_priority(self, request: Request) -> bool:
        """Return whether the request is of the priority class."""
        return self.has_class and request.tier == 0

    def holds_priority(self, cluster: ReferenceCluster, asker: Request | None, i: int) -> bool:
        """Return whether one of that class is seen on instance i."""
        return self.has_class and cluster.details(asker, i).tier_counts.get(0, 0) > 0

    def blocks(self, cluster: ReferenceCluster, i: int) -> int:
        """Return all blocks of instance i but those of the spare tokens."""
        spec = cluster.engines[i].spec
        return max(0, spec.kv_blocks - blocks_for(self.by_tier.reserve_tokens, spec.block_size))


def available_blocks(cluster: ReferenceCluster, i: int, seen: Observation) -> int:
    """Return what is free above the watermark and not waited for."""
    engine = cluster.engines[i]
    return engine.spec.kv_blocks - seen.used_blocks - engine.watermark_blocks - seen.waiting_blocks


def per_request(n_blocks: int, n_requests: int) -> float:
    """Return blocks a request; infinite where there is none."""
    return n_blocks / n_requests if n_requests > 0 else math.inf


class NTierDispatch:
    """The accepting instance with the largest F; the first index on ties."""

    def __init__(self, n_tiers: int, **params: Any) -> None:
        self.headroom = Headroom(n_tiers, **params)

    def __call__(self, cluster: ReferenceCluster, request: Request) -> int | None:
        accepting = [i for i in range(len(cluster.engines)) if cluster.is_accepting(request, i)]
        free = {i: freeness(cluster, request, i, self.headroom) for i in accepting}
        return max(accepting, key=lambda i: (free[i], -i), default=None)


class LlumnixDispatch:
    """The accepting instance with the least load; ties go round."""

    def __init__(self, n_tiers: int, **params: Any) -> None:
        self.reserve = Reserve(n_tiers, **params)
        self.asked = 0

    def load(self, cluster: ReferenceCluster, request: Request, i: int) -> float:
        """Return -(available - adjustment) / (running + waiting)."""
        seen, adjustment = cluster.observe(request, i), self.reserve.by_tier.of(cluster, request, i)
        holds = self.reserve.holds_priority(cluster, request, i)
        if self.reserve.is_on and holds != self.reserve.is_priority(request):
            adjustment = self.reserve.blocks(cluster, i)
        free = available_blocks(cluster, i, seen) - adjustment
        return -per_request(free, seen.n_running + seen.n_waiting)

    def __call__(self, cluster: ReferenceCluster, request: Request) -> int | None:
        n = len(cluster.engines)
        order = [(self.asked + k) % n for k in range(n)]
        self.asked += 1
        accepting = [i for i in order if cluster.is_accepting(request, i)]
        return min(accepting, key=lambda i: self.load(cluster, request, i), default=None)


class FreenessScaling:
    """+1 with the mean F of active instances below a band or none active, -1 above it; then a cool-down.

    signal 1: in the place of F Llumnix's freeness, where an idle instance counts as if it had one request.
    No cool-down after an order to drain that changed nothing, seen from how many drain or are absent.
    """

    def __init__(
        self,
        n_tiers: int,
        low: float = -0.5,
        high: float = 1.5,
        cooldown_s: float = 10.0,
        headroom: int = 0,
        signal: int = 0,
        **params: Any,
    ) -> None:
        self.headroom, self.is_llumnix = Headroom(n_tiers, headroom, **params), signal == 1
        self.low, self.high, self.cooldown_s = low, high, cooldown_s
        self.order, self.ordered_s, self.n_given_up = 0, 0.0, 0

    def __call__(self, cluster: ReferenceCluster) -> int:
        states, now_s = cluster.fleet.states, cluster.now / 1e12
        n_given_up = states.count("draining") + states.count("absent")
        has_drained = self.order == -1 and n_given_up > self.n_given_up
        is_cooling = now_s - self.ordered_s < self.cooldown_s
        if (self.order == 1 or has_drained) and is_cooling:
            return 0
        self.order, self.ordered_s, self.n_given_up = self._band(cluster), now_s, n_given_up
        return self.order

    def _band(self, cluster: ReferenceCluster) -> int:
        active = [i for i, state in enumerate(cluster.fleet.states) if state == "active"]
        total = sum((self._signal(cluster, i) for i in active), 0.0)
        if not active or total < self.low * len(active):
            return 1
        return -1 if total > self.high * len(active) else 0

    def _signal(self, cluster: ReferenceCluster, i: int) -> float:
        if not self.is_llumnix:
            return freeness(cluster, None, i, self.headroom)
        seen = cluster.observe(None, i)
        return available_blocks(cluster, i, seen) / max(1, seen.n_running + seen.n_waiting)
