"""The reference's event loop: looks at every instance at every instant, in the page's order.

Source: docs/engine.md sections 2, 8 and 9. `dispatch(cluster, request)` returns the index of an
instance. Left out: gateway queues, admission control, migration, scaling, faults.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from reference.engine import Engine, Observation
from reference.model import InstanceSpec, Request, blocks_for
from reference.sarathi import Sarathi
from reference.static import Static
from reference.vllm_v0 import VllmV0
from reference.vllm_v1 import VllmV1

ENGINES: dict[str, type[Engine]] = {
    "vllm-v1": VllmV1,
    "vllm-v0": VllmV0,
    "sarathi": Sarathi,
    "static": Static,
}

Dispatch = Callable[["ReferenceCluster", Request], int]


class Rejection(NamedTuple):
    """A request that fits nowhere: what it needs and what each instance has, in blocks."""

    request: Request
    need_blocks: list[int]
    capacity_blocks: list[int]


@dataclass(frozen=True)
class Placement:
    """A router's memory of what it placed since the last refresh."""

    router: int
    instance: int
    request: Request


class ReferenceCluster:
    """Instances, a trace and a router. After `run()` the answers are in the requests."""

    def __init__(
        self,
        specs: Sequence[InstanceSpec],
        requests: Sequence[Request],
        dispatch: Dispatch,
        horizon_ps: int | None = None,
        metrics_interval_ps: int = 0,
        routers: int = 1,
    ) -> None:
        assert [r.index for r in requests] == list(range(len(requests)))
        assert all(a.arrival_ps <= b.arrival_ps for a, b in pairwise(requests))
        self.engines = [ENGINES[spec.engine](spec, i) for i, spec in enumerate(specs)]
        self.requests = list(requests)
        self.dispatch = dispatch
        self.horizon_ps = horizon_ps
        self.metrics_interval_ps = metrics_interval_ps
        self.routers = routers
        self.now = -1  # before the first instant
        self.rejections: list[Rejection] = []
        self._to_arrive = [r for r in requests if horizon_ps is None or r.arrival_ps < horizon_ps]
        for request in requests[len(self._to_arrive) :]:
            request.status = "not_offered"
        self._next_refresh_ps = 0
        self._observed: list[Observation] = []
        self._placements: list[Placement] = []

    @property
    def n_preemptions(self) -> int:
        """How often a preemption happened."""
        return sum(engine.n_preemptions for engine in self.engines)

    @property
    def n_blocked_heads(self) -> int:
        """How many iterations left out a waiting head that did not fit."""
        return sum(engine.n_blocked_heads for engine in self.engines)

    # The loop.

    def run(self, until_ps: int | None = None) -> None:
        """Process every instant <= until_ps, but no iteration start at until_ps itself.

        Those come with the next call. Without until_ps: to the horizon, or until all is done.
        """
        limits = [limit for limit in (until_ps, self.horizon_ps) if limit is not None]
        limit = min(limits, default=None)
        assert limit is None or limit >= self.now
        while limit is None or self.now < limit:
            self._start_iterations()
            instant = self._next_instant(limit)
            if instant is None:
                break
            self.now = instant
            self._end_iterations()
            self._refresh_metrics()
            self._take_arrivals()
        if limit is not None:
            self.now = limit
        if until_ps is None or limit == self.horizon_ps:
            self._finalise()

    def _next_instant(self, limit: int | None) -> int | None:
        """Return the time of the next event if it is not after the limit."""
        times = [e.next_event_ps for e in self.engines if e.next_event_ps is not None]
        times += [request.arrival_ps for request in self._to_arrive[:1]]
        if self.metrics_interval_ps > 0 and (times or limit is not None):
            times.append(self._next_refresh_ps)
        instant = min(times, default=None)
        return None if limit is not None and instant is not None and instant > limit else instant

    def _start_iterations(self) -> None:
        for engine in self.engines:
            if engine.can_start:
                engine.start_iteration(self.now)

    def _end_iterations(self) -> None:
        for engine in self.engines:
            if engine.end_ps == self.now:
                engine.end_iteration(self.now)

    def _refresh_metrics(self) -> None:
        if self.metrics_interval_ps > 0 and self.now == self._next_refresh_ps:
            self._observed = [engine.observe() for engine in self.engines]
            self._placements = []
            self._next_refresh_ps += self.metrics_interval_ps

    def _take_arrivals(self) -> None:
        while self._to_arrive and self._to_arrive[0].arrival_ps == self.now:
            self._arrive(self._to_arrive.pop(0))

    def _arrive(self, request: Request) -> None:
        if not any(engine.fits(request) for engine in self.engines):
            self._reject(request)
            return
        i = self.dispatch(self, request)
        self.engines[i].place(request, self.now)
        self._placements.append(Placement(self._router(request), i, request))

    def _reject(self, request: Request) -> None:
        request.status = "rejected"
        need = [request.most_blocks(engine.spec.block_size) for engine in self.engines]
        capacity = [engine.capacity_blocks for engine in self.engines]
        self.rejections.append(Rejection(request, need, capacity))

    def _finalise(self) -> None:
        for request in self.requests:
            if request.status in ("waiting", "running"):
                request.status = "unfinished"

    # What a router may ask.

    def fits(self, request: Request, i: int) -> bool:
        """Return whether instance i could run the request alone."""
        return self.engines[i].fits(request)

    def observe(self, request: Request | None, i: int) -> Observation:
        """Return instance i as the request's router sees it; for None, as all routers together."""
        if self.metrics_interval_ps == 0:
            return self.engines[i].observe()
        seen = self._observed[i]
        for placement in self._placements:
            is_own = request is None or placement.router == self._router(request)
            if is_own and placement.instance == i:
                seen = self._with_placement(seen, placement.request, i)
        return seen

    def _with_placement(self, seen: Observation, placed: Request, i: int) -> Observation:
        prompt_blocks = blocks_for(placed.prompt_tokens, self.engines[i].spec.block_size)
        return seen._replace(
            n_waiting=seen.n_waiting + 1,
            waiting_blocks=seen.waiting_blocks + prompt_blocks,
            held_tokens=seen.held_tokens + placed.prompt_tokens + placed.predicted_tokens,
        )

    def _router(self, request: Request) -> int:
        return request.index % self.routers
