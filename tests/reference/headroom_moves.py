"""Plain twins of N-tier's and Llumnix's migration.

Both zip extremes: the least free source with the freest destination, then the second of each. Sources: Beyond Binary
Priorities; Llumnix (OSDI '24). What freeness is in either: headroom.py.
"""

import math
from typing import Any

from reference.cluster import ReferenceCluster
from reference.headroom import (
    Headroom,
    Reserve,
    available_blocks,
    freeness,
    is_draining,
    per_request,
    virtual_free,
)
from reference.model import Request

Line = tuple[int, int, Request]  # source, destination


def decoding(cluster: ReferenceCluster, i: int) -> list[Request]:
    """Return the running requests of instance i that decode and are in no move, in their order."""
    engine = cluster.engines[i]
    return [r for r in engine.running if engine.decodes(r) and not is_moving(cluster, r)]


def _has_movable(cluster: ReferenceCluster, i: int) -> bool:
    """Return whether somebody on instance i waits or decodes, in a move or not."""
    engine = cluster.engines[i]
    return bool(engine.waiting) or any(engine.decodes(r) for r in engine.running)


def is_moving(cluster: ReferenceCluster, request: Request) -> bool:
    """Return whether the request is in a move, so that another is refused."""
    return cluster.moves.move_of(request) is not None


def has_slot(cluster: ReferenceCluster, i: int, is_source: bool, slots: int) -> bool:
    """Return whether one more move may go out of instance i, or come to it; slots = 0: always."""
    moves = cluster.moves.under_way
    coming = [m for m in moves if m.destination == i and m.phase != "returning"]
    leaving = [m for m in moves if m.source == i]
    return slots == 0 or len(leaving if is_source else coming) < slots


def known_blocks(cluster: ReferenceCluster, request: Request) -> int:
    """Return the blocks that a waiting request needs; the block size is one for all."""
    return cluster.engines[0].blocks_for(request.known)


class NTierMigration:
    """From F <= min + margin, if max - min >= threshold, or draining, to F >= max - margin."""

    def __init__(
        self,
        n_tiers: int,
        threshold: float = 0.3,
        margin: float = 0.1,
        closer: int = 1,
        slots: int = 2,
        **params: Any,
    ) -> None:
        self.headroom, self.slots = Headroom(n_tiers, **params), slots
        self.threshold, self.margin, self.closer = threshold, margin, closer == 1

    def __call__(self, cluster: ReferenceCluster) -> list[Line]:
        free = {
            i: freeness(cluster, None, i, self.headroom)
            for i, state in enumerate(cluster.fleet.states)
            if state in ("active", "draining")
        }
        sources, destinations = self._sides(cluster, free)
        lines: list[Line] = []
        while sources and destinations:
            source, destination = sources.pop(0), destinations[0]
            if free[source] >= free[destination]:
                break
            found = self._of_pair(cluster, source, destination)
            lines += [(source, destination, request) for request in found]
            if source in destinations:
                destinations.remove(source)
            if found or not is_draining(cluster, source):  # else the next source may have it
                destinations.remove(destination)
                sources = [i for i in sources if i != destination]
        return lines

    def _sides(
        self, cluster: ReferenceCluster, free: dict[int, float]
    ) -> tuple[list[int], list[int]]:
        """Return sources, the least free first, and destinations, the freest first; the first index on ties."""
        active = {i: f for i, f in free.items() if not is_draining(cluster, i)}
        most, least = (
            max(active.values(), default=-math.inf),
            min(active.values(), default=math.inf),
        )
        is_wide = most - least >= self.threshold
        sources = [
            i
            for i in free
            if (is_draining(cluster, i) or (is_wide and free[i] <= least + self.margin))
            and _has_movable(cluster, i)
            and (is_draining(cluster, i) or has_slot(cluster, i, True, self.slots))
        ]
        destinations = [
            i
            for i, f in active.items()
            if f >= most - self.margin and has_slot(cluster, i, False, self.slots)
        ]
        by_least = sorted(sources, key=lambda i: (free[i], i))
        return by_least, sorted(destinations, key=lambda i: (-free[i], i))

    def _of_pair(self, cluster: ReferenceCluster, source: int, destination: int) -> list[Request]:
        engine = cluster.engines[destination]
        room = engine.spec.kv_blocks - cluster.observe(None, destination).used_blocks
        room -= engine.watermark_blocks
        if is_draining(cluster, source):
            return self._everybody(cluster, source, room)
        request = self._least_urgent(cluster, source, room)
        if request is None:
            return []
        if self.closer and not self._is_closer(cluster, source, destination, request):
            return []
        return [request]

    def _everybody(self, cluster: ReferenceCluster, source: int, room: int) -> list[Request]:
        """Return all who wait, and who decodes as long as they fit."""
        chosen = [r for r in cluster.engines[source].queue() if not is_moving(cluster, r)]
        for request in decoding(cluster, source):
            if request.blocks <= room:
                room -= request.blocks
                chosen.append(request)
        return chosen

    def _least_urgent(self, cluster: ReferenceCluster, source: int, room: int) -> Request | None:
        """Return the one of the largest tier, then with the fewest blocks, then waiting, that fits."""
        waiting = [
            (-r.tier, known_blocks(cluster, r), 0, r.arrival_ps, r.index, r)
            for r in cluster.engines[source].waiting
        ]
        running = [(-r.tier, r.blocks, 1, k, 0, r) for k, r in enumerate(decoding(cluster, source))]
        first = sorted(entry for entry in waiting if entry[1] <= room)[:1]
        # only the first of those that wait is looked at
        first = [entry for entry in first if not is_moving(cluster, entry[-1])]
        fitting = first + [entry for entry in running if entry[1] <= room]
        return min(fitting, key=lambda entry: entry[:-1], default=(None,))[-1]

    def _is_closer(
        self, cluster: ReferenceCluster, source: int, destination: int, request: Request
    ) -> bool:
        """Return whether the move leaves |F - F'| smaller than it is.

        F sees only the head of the queues: where it sees no change, the source's must not become the shorter.
        """
        here, there = (cluster.observe(None, i) for i in (source, destination))
        free_here, free_there = self._free_after(cluster, source, destination, request)
        is_waiting = request.status == "waiting"
        running_here = here.n_running - (0 if is_waiting else 1)
        running_there = there.n_running + (0 if is_waiting else 1)
        before = freeness(cluster, None, destination, self.headroom)
        before -= freeness(cluster, None, source, self.headroom)
        after = free_there / max(1, running_there) - free_here / max(1, running_here)
        if is_waiting and after == before:
            return there.n_waiting + 1 <= here.n_waiting - 1
        return abs(after) < abs(before)

    def _free_after(
        self, cluster: ReferenceCluster, source: int, destination: int, request: Request
    ) -> tuple[int, int]:
        """Return M - virtual usage of both once the request has moved."""
        free_here = virtual_free(cluster, None, source, self.headroom)
        free_there = virtual_free(cluster, None, destination, self.headroom)
        free_here += self.headroom.released(cluster, source, request.tier)
        free_there -= self.headroom.added(cluster, destination, request.tier)
        if request.status != "waiting":
            return free_here + request.blocks, free_there - request.blocks
        # A queue of several keeps its head, as far as F is asked.
        if cluster.observe(None, source).n_waiting == 1:
            free_here += cluster.details(None, source).head_blocks
        if cluster.observe(None, destination).n_waiting == 0:
            free_there -= known_blocks(cluster, request)
        return free_here, free_there


class LlumnixMigration:
    """From f < T or a preempted request waiting to f > T without one; a running normal request a pair."""

    def __init__(
        self,
        n_tiers: int,
        threshold: float = 3.0,
        shortest: int = 0,
        closer: int = 1,
        slots: int = 0,
        **params: Any,
    ) -> None:
        self.slots = slots
        self.reserve = Reserve(n_tiers, **params)
        self.threshold, self.shortest, self.closer = threshold, shortest == 1, closer == 1

    def __call__(self, cluster: ReferenceCluster) -> list[Line]:
        sources, destinations = [], []
        for i, state in enumerate(cluster.fleet.states):
            f = self._steps(cluster, i)
            is_short = any(r.preemptions > 0 for r in cluster.engines[i].waiting)
            is_source = state == "draining" or is_short or f < self.threshold
            if state not in ("active", "draining") or not has_slot(
                cluster, i, is_source, self.slots
            ):
                continue
            if is_source:
                sources.append((-math.inf if state == "draining" else f, i))
            elif f > self.threshold:
                destinations.append((-f, i))
        pairs = zip(sorted(sources), sorted(destinations), strict=False)
        found = [(i, j, self._of_pair(cluster, i, j)) for (_, i), (_, j) in pairs]
        return [(i, j, request) for i, j, request in found if request is not None]

    def _blocks(self, cluster: ReferenceCluster, i: int) -> int:
        """Return available blocks, less the reserve where a priority request is."""
        free = available_blocks(cluster, i, cluster.observe(None, i))
        free -= self.reserve.by_tier.of(cluster, None, i)
        if self.reserve.is_on and self.reserve.holds_priority(cluster, None, i):
            free -= self.reserve.blocks(cluster, i)
        return free

    def _requests(self, cluster: ReferenceCluster, i: int) -> int:
        """Return running requests, and one for all that wait."""
        seen = cluster.observe(None, i)
        return seen.n_running + (seen.n_waiting > 0)

    def _steps(self, cluster: ReferenceCluster, i: int, n: int = 0, blocks: int = 0) -> float:
        """Return f of instance i with n running requests more, of so many blocks."""
        return per_request(self._blocks(cluster, i) - blocks, self._requests(cluster, i) + n)

    def _of_pair(self, cluster: ReferenceCluster, source: int, destination: int) -> Request | None:
        request = self._victim(cluster, source)
        if request is None or not self.closer or is_draining(cluster, source):
            return request
        before = self._steps(cluster, destination) - self._steps(cluster, source)
        by_tier = self.reserve.by_tier
        brought = request.blocks + by_tier.added(cluster, destination, request.tier)
        taken = request.blocks + by_tier.released(cluster, source, request.tier)
        after = self._steps(cluster, destination, 1, brought)
        after -= self._steps(cluster, source, -1, -taken)
        return request if abs(after) < abs(before) else None

    def _victim(self, cluster: ReferenceCluster, source: int) -> Request | None:
        """Return the last normal request that decodes, or the one with the fewest blocks."""
        normal = [r for r in decoding(cluster, source) if not self.reserve.is_priority(r)]
        if self.shortest:
            return min(normal, key=lambda r: r.blocks, default=None)
        return normal[-1] if normal else None
