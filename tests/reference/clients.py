"""Clients: time limits, cancellations, asking again.

Source: docs/engine.md section 15.
"""

from typing import TYPE_CHECKING

from reference.model import Request

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster


class Clients:
    """The time limits of requests in the system, and the requests that will come again."""

    def __init__(self, cluster: "ReferenceCluster") -> None:
        self.cluster = cluster
        self.options = cluster.options
        self.limits: dict[Request, int] = {}
        self.retries: list[tuple[int, int, Request]] = []  # (time, trace index, request)
        self.cancelled_while: list[str] = []  # the status that each had

    @property
    def next_limit_ps(self) -> int | None:
        """The next time limit of a request that has not ended."""
        self.limits = {r: limit for r, limit in self.limits.items() if r.is_in_system}
        later = [limit for limit in self.limits.values() if limit > self.cluster.now]
        return min(later, default=None)

    @property
    def next_retry_ps(self) -> int | None:
        """When a client asks again next."""
        return min(self.retries)[0] if self.retries else None

    def note_arrival(self, request: Request) -> None:
        """Set the time limit of a request that arrives now."""
        timeout_ps = self.options.timeout_of(request.tier)
        if timeout_ps is not None:
            self.limits[request] = self.cluster.now + timeout_ps

    # Cancellations.

    def cancel(self) -> None:
        """Cancel who is due: at once, or, if it runs in an iteration, when that has ended."""
        now = self.cluster.now
        due = [r for r, limit in self.limits.items() if limit <= now and r.is_in_system]
        for request in sorted(due, key=lambda request: request.index):
            if self.limits[request] == now:
                self.cluster.gateway.is_called = True
            if request.status == "running":
                engine = self.cluster.engines[request.instance or 0]
                if engine.spec.engine == "static":
                    del self.limits[request]  # for good
                    continue
                if engine.end_ps is not None:
                    continue
            self._cancel(request)

    def _cancel(self, request: Request) -> None:
        cluster = self.cluster
        self.cancelled_while.append(request.status)
        if request.status == "parked":
            cluster.moves.drop_parked(request, "ended first")
        if request.status in ("held", "queued"):
            cluster.gateway.drop(request)
        else:
            cluster.engines[request.instance or 0].drop(request)
        del self.limits[request]
        cluster.end(request, "cancelled")
        cluster.gateway.is_called = True
        if request.attempt <= self.options.client_retries:
            wait_ps = self.options.retry_backoff_ps * 2 ** (request.attempt - 1)
            self._ask_again(request, cluster.now + wait_ps)

    # Asking again.

    def _ask_again(self, request: Request, at_ps: int) -> None:
        horizon_ps = self.cluster.horizon_ps
        if horizon_ps is None or at_ps < horizon_ps:
            self.retries.append((at_ps, request.index, request))

    def take_retries(self) -> list[Request]:
        """Return who comes again now, by trace index, as new."""
        due = sorted(retry for retry in self.retries if retry[0] <= self.cluster.now)
        self.retries = [retry for retry in self.retries if retry not in due]
        requests = [request for _, _, request in due]
        for request in requests:
            request.attempt += 1
            request.generated = request.computed = 0
            request.first_token_ps = request.ended_ps = request.instance = None
            request.status = "new"
        return requests
