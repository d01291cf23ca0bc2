"""The reference's event loop: looks at every instance at every instant, in the page's order.

Source: docs/engine.md sections 2, 8, 9 and 11; gateway, moves, scaling, faults and clients have a
file each. Policies are plain functions: `dispatch(cluster, request)` returns the index of an
instance or None for HOLD; the others are listed at `Policies`.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from reference.clients import Clients
from reference.engine import Details, Engine, Observation
from reference.faults import Faults
from reference.gateway import Gateway
from reference.model import InstanceSpec, Request
from reference.moves import Moves
from reference.options import Options
from reference.sarathi import Sarathi
from reference.scaling import Fleet
from reference.static import Static
from reference.vllm_v0 import VllmV0
from reference.vllm_v1 import VllmV1
from reference.what_if import clipped

ENGINES: dict[str, type[Engine]] = {
    "vllm-v1": VllmV1,
    "vllm-v0": VllmV0,
    "sarathi": Sarathi,
    "static": Static,
}

Dispatch = Callable[["ReferenceCluster", Request], int | None]
Admission = Callable[["ReferenceCluster", Request], str | None]  # ACCEPT, HOLD or REJECT
QueuePolicy = Callable[["ReferenceCluster"], int | None]  # a queue, or None for HOLD
Migration = Callable[["ReferenceCluster"], Iterable[tuple[int, int, Request]]]
Scaling = Callable[["ReferenceCluster"], int]


class Estimator(Protocol):
    """Predicts output tokens; may have `observe(request)`, which is shown every completion."""

    def __call__(self, request: Request) -> float:
        """Return the prediction."""
        ...


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
    known_tokens: int  # as it was then


class ReferenceCluster:
    """Instances, a trace and policies. After `run()` the answers are in the requests."""

    def __init__(
        self,
        specs: Sequence[InstanceSpec],
        requests: Sequence[Request],
        dispatch: Dispatch,
        horizon_ps: int | None = None,
        metrics_interval_ps: int = 0,
        routers: int = 1,
        options: Options | None = None,
        admission: Admission | None = None,
        queue_policy: QueuePolicy | None = None,
        migration: Migration | None = None,
        scaling: Scaling | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        assert [r.index for r in requests] == list(range(len(requests)))
        assert all(a.arrival_ps <= b.arrival_ps for a, b in pairwise(requests))
        self.options = Options() if options is None else options
        self.engines = [ENGINES[spec.engine](spec, i) for i, spec in enumerate(specs)]
        self.requests = list(requests)
        self.dispatch = dispatch
        self.admission = admission
        self.queue_policy = queue_policy
        self.migration = migration
        self.scaling = scaling
        self.estimator = estimator
        self.horizon_ps = horizon_ps
        self.metrics_interval_ps = metrics_interval_ps
        self.routers = routers
        self.now = -1  # before the first instant
        self.rejections: list[Rejection] = []
        self.gateway = Gateway(self)
        self.fleet = Fleet(self)
        self.moves = Moves(self)
        self.faults = Faults(self)
        self.clients = Clients(self)
        self._to_arrive = [r for r in requests if horizon_ps is None or r.arrival_ps < horizon_ps]
        for request in requests[len(self._to_arrive) :]:
            request.status = "not_offered"
        self._arrived: list[Request] = []  # and not ended
        self._next_refresh_ps = 0
        self._observed = [engine.observe() for engine in self.engines]
        self._details = [engine.details() for engine in self.engines]
        self._placements: list[Placement] = []
        self.snapshot_ps = 0  # the last one
        self.snapshots: list[Engine] = []
        self.placements_since_snapshot: list[Placement] = []
        self._next_scaling_ps = self._next_rebalance_ps = self._next_snapshot_ps = 0
        self._last_event_ps = 0  # that was no timer's round, refresh or tick without effect
        self._shown: set[tuple[int, int]] = set()  # completions that the estimator has seen
        self.n_clipped_predictions = 0

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
                if limit is None and self.gateway.held:
                    self.gateway.name_who_holds()
                break
            if self._is_stuck(instant):
                break
            self.now = instant
            self._do_instant()
        if limit is not None:
            self.now = limit
        if until_ps is None or limit == self.horizon_ps:
            self._finalise()

    @property
    def _is_left_to_do(self) -> bool:
        """Whether a request is in the system or to come, or a move is under way."""
        is_to_come = bool(self._to_arrive or self.clients.retries)
        return is_to_come or self._is_in_system or bool(self.moves.under_way)

    @property
    def _is_in_system(self) -> bool:
        return bool(self.gateway.held) or any(engine.is_occupied for engine in self.engines)

    def _events(self) -> list[int]:
        """Return the times of what will happen, but for rounds of the timer, refreshes and ticks."""
        times: list[int | None] = [engine.next_event_ps for engine in self.engines]
        times += [request.arrival_ps for request in self._to_arrive[:1]]
        times += [self.moves.next_event_ps, self.faults.next_event_ps]
        times += [self.clients.next_limit_ps, self.clients.next_retry_ps]
        times += self.fleet.ready_ps.values()
        return [time for time in times if time is not None]

    def _ticks(self) -> list[int]:
        """Return the times of what happens again and again, if it does."""
        times = []
        if self.metrics_interval_ps > 0:
            times.append(self._next_refresh_ps)
        if self.options.snapshot_interval_ps > 0:
            times.append(self._next_snapshot_ps)
        if self._is_left_to_do and self.scaling is not None:
            times.append(self._next_scaling_ps)
        if self._is_left_to_do and self.migration is not None:
            times.append(self._next_rebalance_ps)
        return times

    def _next_instant(self, limit: int | None) -> int | None:
        """Return the time of the next event if it is not after the limit."""
        if limit is None and not self._is_left_to_do:
            return None
        times = self._events()
        if self.gateway.timer_ps is not None:
            times.append(self.gateway.timer_ps)
        if times or limit is not None:
            times += self._ticks()
        instant = min(times, default=None)
        return None if limit is not None and instant is not None and instant > limit else instant

    def _do_instant(self) -> None:
        if self.now in self._events():
            self._last_event_ps = self.now
        phases = [
            self._end_iterations,
            self.faults.act,
            self.fleet.finish_starts,
            self.moves.advance,
            self.clients.cancel,
            self._refresh_metrics,
            self._take_arrivals,
            self._take_retries,
            self.gateway.release,
            self._tick_scaling,
            self._tick_migration,
        ]
        for phase in phases:
            phase()
            self.fleet.retire()
        if self.gateway.is_called:  # by a tick
            self.gateway.release()
        self.check_conservation()

    def _start_iterations(self) -> None:
        for engine in self.engines:
            if engine.can_start:
                engine.start_iteration(self.now)

    def _end_iterations(self) -> None:
        for engine in self.engines:
            if engine.end_ps == self.now and engine.end_iteration(self.now):
                self.gateway.is_called = True

    def _refresh_metrics(self) -> None:
        if self.metrics_interval_ps > 0 and self.now == self._next_refresh_ps:
            for i, engine in enumerate(self.engines):
                if not self.faults.has("metrics", i):
                    self._observed[i], self._details[i] = engine.observe(), engine.details()
                    self._placements = [p for p in self._placements if p.instance != i]
            self._next_refresh_ps += self.metrics_interval_ps
        if self.options.snapshot_interval_ps > 0 and self.now == self._next_snapshot_ps:
            self.snapshots, self.snapshot_ps = deepcopy(self.engines), self.now
            self.placements_since_snapshot = []
            self._next_snapshot_ps += self.options.snapshot_interval_ps

    def _take_arrivals(self) -> None:
        while self._to_arrive and self._to_arrive[0].arrival_ps == self.now:
            self._arrive(self._to_arrive.pop(0))

    def _take_retries(self) -> None:
        for request in self.clients.take_retries():
            self._offer(request)

    def _offer(self, request: Request) -> None:
        self._arrived.append(request)
        self.clients.note_arrival(request)
        self.gateway.offer(request)

    def _arrive(self, request: Request) -> None:
        self._predict(request)
        if not any(engine.fits(request) for engine in self.engines):
            self._reject_misfit(request)
            return
        self._offer(request)

    def _predict(self, request: Request) -> None:
        if self.estimator is None:
            return
        observe = getattr(self.estimator, "observe", None)
        if observe is not None:
            ended = [r for r in self.requests if r.status == "finished"]
            for r in sorted(ended, key=lambda r: (r.finish_ps or 0, r.index)):
                if (r.finish_ps or 0, r.index) not in self._shown:
                    self._shown.add((r.finish_ps or 0, r.index))
                    observe(r)
        tokens = self.estimator(request)
        request.predicted_tokens = clipped(tokens)
        is_inside = 1 <= tokens <= 2**30
        self.n_clipped_predictions += not is_inside

    def _reject_misfit(self, request: Request) -> None:
        self.end(request, "rejected")
        need = [request.most_blocks(engine.spec.block_size) for engine in self.engines]
        capacity = [engine.capacity_blocks for engine in self.engines]
        self.rejections.append(Rejection(request, need, capacity))

    def _tick_scaling(self) -> None:
        if self.scaling is None or self.now != self._next_scaling_ps:
            return
        self._next_scaling_ps += self.options.scaling_interval_ps
        if self._is_left_to_do and self.fleet.order(self.scaling(self)):
            self._last_event_ps = self.now

    def _tick_migration(self) -> None:
        if self.migration is None or self.now != self._next_rebalance_ps:
            return
        self._next_rebalance_ps += self.options.rebalance_interval_ps
        if not self._is_in_system:
            return
        for source, destination, request in list(self.migration(self)):
            self.moves.begin(source, destination, request)
            self._last_event_ps = self.now

    def _is_stuck(self, instant: int) -> bool:
        """Whether only the timer goes on and, at the next instant, has for max_hold_ps; or raise."""
        if not self.gateway.held or any(engine.is_occupied for engine in self.engines):
            return False
        if self._events() or instant - self._last_event_ps < self.options.max_hold_ps:
            return False
        self.gateway.name_who_holds()
        return True

    def _finalise(self) -> None:
        for request in self.requests:
            if request.is_in_system:
                request.status = "unfinished"

    # What the parts do to requests.

    def place(self, request: Request, i: int) -> None:
        """Put a request that left the gateway on an instance."""
        self.engines[i].place(request, self.now)
        placement = Placement(self.router_of(request), i, request, request.known)
        self._placements.append(placement)
        self.placements_since_snapshot.append(placement)

    def end(self, request: Request, status: str) -> None:
        """End a request that is nowhere any more, without its last token."""
        request.status = status
        request.ended_ps = self.now
        assert request.blocks == 0

    def check_conservation(self) -> None:
        """Assert that every request is in exactly one place, and every block, too."""
        places = [self.gateway.fifo, *self.gateway.queues]
        places += [place for e in self.engines for place in (e.waiting, e.running, e.parked)]
        everybody = [request for place in places for request in place]
        assert len(set(everybody)) == len(everybody)
        self._arrived = [request for request in self._arrived if request.is_in_system]
        assert set(everybody) == set(self._arrived)
        for i, engine in enumerate(self.engines):
            engine.check_conservation()
            assert self.fleet.states[i] in ("active", "draining") or not engine.is_occupied
        self.moves.check_conservation()

    # What a policy may ask.

    def fits(self, request: Request, i: int) -> bool:
        """Return whether instance i could run the request alone."""
        return self.engines[i].fits(request)

    def is_accepting(self, request: Request, i: int) -> bool:
        """Return whether instance i takes the request from the gateway now."""
        engine, most = self.engines[i], self.options.max_local_waiting
        if not (self.fleet.is_active(i) and engine.fits(request)):
            return False
        if most == 0:
            return engine.accepts_pull(request)
        return most is None or len(engine.waiting) < most

    def observe(self, request: Request | None, i: int) -> Observation:
        """Return instance i as the request's router sees it; for None, as all routers together."""
        if self.metrics_interval_ps == 0:
            return self.engines[i].observe()
        seen = self._observed[i]
        for placement in self._placed_since(request, i):
            seen = self._with_placement(seen, placement)
        return seen

    def details(self, request: Request | None, i: int) -> Details:
        """Return the rest of what the request's router sees; for None, all routers together."""
        if self.metrics_interval_ps == 0:
            return self.engines[i].details()
        head_blocks, counts = self._details[i].head_blocks, dict(self._details[i].tier_counts)
        for placement in self._placed_since(request, i):
            tier = placement.request.tier
            counts[tier] = counts.get(tier, 0) + 1
            if head_blocks == 0:
                head_blocks = self.engines[i].blocks_for(placement.known_tokens)
        return self._details[i]._replace(head_blocks=head_blocks, tier_counts=counts)

    def _placed_since(self, request: Request | None, i: int) -> list[Placement]:
        """Return what the request's router placed on instance i since its refresh."""
        return [
            p
            for p in self._placements
            if p.instance == i and (request is None or p.router == self.router_of(request))
        ]

    def _with_placement(self, seen: Observation, placement: Placement) -> Observation:
        placed, engine = placement.request, self.engines[placement.instance]
        return seen._replace(
            n_waiting=seen.n_waiting + 1,
            waiting_blocks=seen.waiting_blocks + engine.blocks_for(placement.known_tokens),
            held_tokens=seen.held_tokens + placed.prompt_tokens + placed.predicted_tokens,
        )

    def router_of(self, request: Request) -> int:
        """Return the router a request belongs to."""
        return request.index % self.routers
