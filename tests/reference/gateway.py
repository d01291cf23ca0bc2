"""The gateway: queues, the admission FIFO, rounds and what calls for one.

Source: docs/engine.md section 10.
"""

from typing import TYPE_CHECKING

from reference.engine import NoProgressError
from reference.model import Request
from reference.options import ACCEPT, REJECT

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster


class NotAcceptedError(NoProgressError):
    """A policy chose an instance that does not accept, or a queue that has no head."""


class Gateway:
    """Requests that have arrived and have no instance yet."""

    def __init__(self, cluster: "ReferenceCluster") -> None:
        self.cluster = cluster
        self.options = cluster.options
        codes = [self._code(request) for request in cluster.requests]
        self.queues: list[list[Request]] = [[] for _ in range(max(codes, default=0) + 1)]
        self.fifo: list[Request] = []  # the admission policy said HOLD
        self.n_holds = 0
        self.n_rounds = 0
        self.last_round_ps = 0
        self.is_called = False  # something happened that calls for a round

    # What it holds.

    @property
    def held(self) -> list[Request]:
        """Everybody here."""
        return self.fifo + [request for queue in self.queues for request in queue]

    def head(self, q: int) -> Request | None:
        """Return the first request of a queue."""
        return min(self.queues[q], key=lambda request: request.rank, default=None)

    def is_ready(self, q: int) -> bool:
        """Return whether some instance accepts the head of the queue."""
        head = self.head(q)
        instances = range(len(self.cluster.engines))
        return head is not None and any(self.cluster.is_accepting(head, i) for i in instances)

    def _code(self, request: Request) -> int:
        return {"none": 0, "tier": request.tier, "tenant": request.tenant}[self.options.queue_by]

    # In and out.

    def offer(self, request: Request) -> None:
        """Take an arrival: ask the admission policy, then hold a round."""
        self._decide(request)
        self.round()

    def enter(self, request: Request) -> None:
        """Put a request into its queue."""
        request.status = "queued"
        request.instance = None
        request.key = self.cluster.engines[0].key_of(request, self.cluster.now)
        self.queues[self._code(request)].append(request)

    def drop(self, request: Request) -> None:
        """Let a request go that is here."""
        for place in [self.fifo, *self.queues]:
            if request in place:
                place.remove(request)

    def _decide(self, request: Request) -> None:
        """Ask about a request that is nowhere, or in the FIFO."""
        admission = self.cluster.admission
        verdict = ACCEPT if admission is None else admission(self.cluster, request)
        if verdict is None:
            if request not in self.fifo:
                self.fifo.append(request)
            request.status = "held"
            return
        self.drop(request)
        if verdict == REJECT:
            self.cluster.end(request, "rejected")
        else:
            assert verdict == ACCEPT
            self.enter(request)

    # Rounds.

    def round(self) -> None:
        """Ask about those that were held, then place while some head is accepted and nobody holds."""
        self.n_rounds += 1
        self.last_round_ps = self.cluster.now
        for request in list(self.fifo):
            self._decide(request)
        while any(self._ready_queues()):
            request = self._chosen_head()
            i = None if request is None else self.cluster.dispatch(self.cluster, request)
            if request is None or i is None:
                self.n_holds += 1
                return
            if not self.cluster.is_accepting(request, i):
                raise NotAcceptedError(f"instance {i} does not accept request {request.index}")
            self.drop(request)
            self.cluster.place(request, i)

    def _ready_queues(self) -> list[bool]:
        """Look at time-dependent keys again, then at every queue."""
        engine = self.cluster.engines[0]
        if engine.spec.time_dependent:
            for request in self.held:
                if request.status == "queued":
                    request.key = engine.key_of(request, self.cluster.now)
        return [self.is_ready(q) for q in range(len(self.queues))]

    def _chosen_head(self) -> Request | None:
        """Return the head to place, or None for HOLD or a queue that is not ready."""
        if self.cluster.queue_policy is None:
            heads = [self.head(q) for q in range(len(self.queues)) if self.is_ready(q)]
            return min((head for head in heads if head is not None), key=lambda head: head.rank)
        q = self.cluster.queue_policy(self.cluster)
        if q is None:
            return None
        if not 0 <= q < len(self.queues) or not self.queues[q]:
            raise NotAcceptedError(f"queue {q} is empty or unknown")
        return self.head(q) if self.is_ready(q) else None

    # Releases.

    @property
    def timer_ps(self) -> int | None:
        """When the timer calls for a round."""
        if self.options.hold_timer_ps == 0 or not self.held:
            return None
        return self.last_round_ps + self.options.hold_timer_ps

    def release(self) -> None:
        """Hold a round if something called for it, or the timer did."""
        timer_ps = self.timer_ps
        is_due = timer_ps is not None and timer_ps <= self.cluster.now
        if self.held and (self.is_called or is_due):
            self.round()
        self.is_called = False

    def name_who_holds(self) -> None:
        """Raise if somebody could be placed or admitted: nothing else will ever happen."""
        ready = [q for q, is_ready in enumerate(self._ready_queues()) if is_ready]
        if self.fifo or ready:
            raise NoProgressError(f"a policy holds {len(self.held)} requests for ever")
