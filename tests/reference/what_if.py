"""What-if: a copy of one instance runs alone, with the lengths that somebody believes in.

Source: docs/engine.md section 11.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from reference.engine import Engine
from reference.model import Request

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster

Remaining = Callable[[Request], float]
LONGEST = 2**30


def plug_in(request: Request) -> float:
    """Return what the prediction leaves, or 10 if it is used up."""
    left = request.predicted_tokens - request.generated
    return left if left > 0 else 10


def clipped(tokens: float) -> int:
    """Return a number of tokens a policy said, rounded half to even, in [1, 2**30]."""
    if tokens != tokens or tokens < 1:
        return 1
    return LONGEST if tokens > LONGEST else max(1, round(tokens))


class WhatIf:
    """Predictions for a candidate that stands before the routers now."""

    def __init__(self, cluster: "ReferenceCluster", remaining: Remaining = plug_in) -> None:
        self.cluster = cluster
        self.remaining = remaining

    def finish_ps(self, candidate: Request, i: int) -> int:
        """Return how long until the candidate finishes if it is placed on instance i now."""
        everyone = self._run(candidate, i, is_with=True)
        twin = next(r for r in everyone if r.index == candidate.index)
        assert twin.finish_ps is not None
        return twin.finish_ps - self.cluster.now

    def marginal_latency_ps(self, candidate: Request, i: int, by_tier: bool = False) -> float:
        """Return by how much the candidate lengthens the times of everybody there, its own included."""
        total = 0.0
        for is_with in (True, False):
            for request in self._run(candidate, i, is_with):
                assert request.finish_ps is not None
                weight = 0.5**request.tier if by_tier else 1.0
                latency = weight * (request.finish_ps - self.cluster.now)
                total += latency if is_with else -latency
        return total

    def _run(self, candidate: Request, i: int, is_with: bool) -> list[Request]:
        """Run the copy to its end; return who was on it at its beginning or came later."""
        engine, begin_ps, placements = self._copy(candidate, i)
        if is_with:
            placements.append((self.cluster.now, _twin(candidate, candidate.generated)))
        everyone = engine.everyone + [request for _, request in placements]
        for request in everyone:
            self._believe(request, engine)
        run_alone(engine, begin_ps, placements)
        return everyone

    def _copy(self, candidate: Request, i: int) -> tuple[Engine, int, list[tuple[int, Request]]]:
        """Return the copy, its time, and what the candidate's router placed on it since then."""
        cluster = self.cluster
        if cluster.options.snapshot_interval_ps == 0:
            return release_moves(deepcopy(cluster.engines[i])), cluster.now, []
        engine = release_moves(deepcopy(cluster.snapshots[i]))
        placed = [
            placement.request
            for placement in cluster.placements_since_snapshot
            if placement.instance == i
            and placement.router == cluster.router_of(candidate)
            and placement.request.arrival_ps >= cluster.snapshot_ps
        ]
        placed.sort(key=lambda request: request.index)
        return engine, cluster.snapshot_ps, [(r.arrival_ps, _twin(r, 0)) for r in placed]

    def _believe(self, request: Request, engine: Engine) -> None:
        """Replace the output by what was streamed and what is believed to remain, cut to fit."""
        request.output_tokens = request.generated + clipped(self.remaining(request))
        most = engine.capacity_blocks * engine.spec.block_size + 1 - request.prompt_tokens
        if engine.spec.engine == "vllm-v0":
            most = min(most, engine.spec.max_num_batched_tokens + 1 - request.prompt_tokens)
        request.output_tokens = max(request.generated + 1, min(request.output_tokens, most))
        assert engine.fits(request)


def _twin(request: Request, generated: int) -> Request:
    """Return a request as new, with so many tokens streamed before."""
    return Request(
        request.index,
        request.arrival_ps,
        request.prompt_tokens,
        request.output_tokens,
        request.predicted_tokens,
        request.tier,
        request.tenant,
        generated,
    )


def release_moves(engine: Engine) -> Engine:
    """Let a copy have nothing to do with moves and faults; who is parked runs on."""
    engine.unreserve(engine.reserved_blocks, engine.reserved_seats)
    for request in list(engine.parked):
        engine.unpark(request)
    engine.slow_factor = 1.0
    return engine


def run_alone(engine: Engine, begin_ps: int, placements: list[tuple[int, Request]]) -> None:
    """Run one instance to its end; placements are (time, request), in the order of the times."""
    to_come, now = list(placements), begin_ps
    while True:
        if engine.end_ps == now:
            engine.end_iteration(now)
        while to_come and to_come[0][0] <= now:
            engine.place(to_come.pop(0)[1], now)
        if engine.can_start:
            engine.start_iteration(now)
        times = [time for time, _ in to_come[:1]]
        if engine.next_event_ps is not None:
            times.append(engine.next_event_ps)
        if not times:
            return
        now = min(times)
