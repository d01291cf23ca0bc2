"""What all engine modes share: order, preemption, block ledger, progress, what a router sees.

Source: docs/engine.md sections 3, 8, 9, 10 (who is accepted in pull mode) and 12 (what a move does
to an instance). A mode says which requests an iteration holds (`form`)
and which requests fit; this file runs the iteration and keeps the books, asserting conservation
each time.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from reference.model import LAST_PS, InstanceSpec, Request, blocks_for


class NoProgressError(RuntimeError):
    """An instance that cannot, or does not, get on."""


class Observation(NamedTuple):
    """What a router may see of an instance."""

    n_waiting: int
    n_running: int
    used_blocks: int
    waiting_blocks: int
    held_tokens: int


class Details(NamedTuple):
    """What a router may see besides."""

    context_tokens: int
    head_blocks: int
    tier_counts: dict[int, int]  # of the tiers that are there


@dataclass(frozen=True)
class Part:
    """One request's part in an iteration: `new` tokens, decoded or prefilled."""

    request: Request
    new: int
    is_decode: bool


class Engine:
    """One instance. `waiting` and `running` are plain lists; `parts` is the iteration in flight."""

    default_watermark = 0.0
    budget_covers_seqs = False  # max_num_batched_tokens must be >= max_num_seqs

    def __init__(self, spec: InstanceSpec, index: int) -> None:
        if self.budget_covers_seqs and spec.max_num_batched_tokens < spec.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens = {spec.max_num_batched_tokens}; "
                f"must be >= max_num_seqs = {spec.max_num_seqs}"
            )
        self.spec = spec
        self.index = index
        self.watermark_blocks = spec.watermark_blocks(self.default_watermark)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.parked: list[Request] = []  # stopped for the last stage of their move away
        self.reserved_blocks = 0  # for moves to this instance
        self.reserved_seats = 0
        self.free_blocks = spec.kv_blocks
        self.slow_factor = 1.0
        self.parts: list[Part] = []
        self.end_ps: int | None = None
        self.n_iterations = 0
        self.n_preemptions = 0
        self.n_blocked_heads = 0  # iterations that left out a waiting head which did not fit
        self.head_is_blocked = False  # so in the iteration being formed
        self._fruitless_preemptions = 0
        self._has_admitted = False  # since the last iteration began
        self._iteration_admitted = False  # the one in flight
        self._waits_for_moves = False  # nobody can go on until blocks or seats are given back

    # What each mode says.

    def form(self, now: int) -> list[Part]:
        """Choose the parts of the next iteration: admit, take blocks, preempt."""
        raise NotImplementedError

    @property
    def capacity_blocks(self) -> int:
        """The largest `need` that ever fits."""
        raise NotImplementedError

    def decodes(self, request: Request) -> bool:
        """Return whether a running request decodes; as of the last iteration end."""
        raise NotImplementedError

    def admission_tokens(self, request: Request) -> int:
        """Return the tokens whose blocks must be free for the request to be admitted."""
        return request.known

    def accepts_pull(self, request: Request) -> bool:
        """Return whether it would be admitted behind all who wait (max_local_waiting = 0)."""
        if any(waiting.preemptions > 0 for waiting in self.waiting):
            return False
        if len(self.running) + len(self.waiting) + self.n_parked >= self.spec.max_num_seqs:
            return False
        left = self.free_blocks - self.observe().waiting_blocks
        new = self.blocks_for(self.admission_tokens(request))
        return left - new >= self.watermark_blocks

    def fits(self, request: Request) -> bool:
        """Return whether the request could run here alone."""
        return request.most_blocks(self.spec.block_size) <= self.capacity_blocks

    # Events.

    @property
    def next_event_ps(self) -> int | None:
        """The end of the iteration in flight, if there is one."""
        return self.end_ps

    @property
    def can_start(self) -> bool:
        """No iteration is in flight and there is work."""
        has_work = bool(self.waiting or self.running)
        return self.end_ps is None and has_work and not self._waits_for_moves

    @property
    def everyone(self) -> list[Request]:
        """All requests on the instance."""
        return self.waiting + self.running + self.parked

    @property
    def is_occupied(self) -> bool:
        """Whether anybody is here."""
        return bool(self.waiting or self.running or self.parked)

    def place(self, request: Request, now: int) -> None:
        """Put an arriving request at the end of the queue."""
        request.instance = self.index
        request.status = "waiting"
        request.key = self.key_of(request, now)
        self.waiting.append(request)
        self._waits_for_moves = False

    def start_iteration(self, now: int) -> None:
        """Form iterations until one schedules something, and start that one."""
        while True:
            self.evaluate_keys(now)
            n_preemptions = self.n_preemptions
            parts = self.form(now)
            if parts:
                return self.launch(parts, now)
            self.check_conservation()
            if self.n_preemptions > n_preemptions:
                continue
            if self.has_moves:
                self._waits_for_moves, self.head_is_blocked = True, False
                return
            else:
                raise NoProgressError(
                    f"instance {self.index} is idle and refuses its head, "
                    f"request {self.queue()[0].index}"
                )

    def launch(self, parts: list[Part], now: int) -> None:
        """Put the iteration in flight."""
        self.parts = parts
        self.check_conservation()
        decodes = [part.request for part in parts if part.is_decode]
        chunks = [(part.request.computed, part.new) for part in parts if not part.is_decode]
        self.end_ps = now + self.spec.time.duration_ps(
            sum(chunk for _, chunk in chunks),
            len(decodes),
            sum(request.computed + 1 for request in decodes),
            chunks,
            self.slow_factor,
        )
        if self.end_ps > LAST_PS:
            raise OverflowError(f"instance {self.index}: time passes {LAST_PS} ps")
        self.n_iterations += 1
        self.n_blocked_heads += self.head_is_blocked
        self.head_is_blocked = False
        self._iteration_admitted, self._has_admitted = self._has_admitted, False
        for part in parts:
            if part.request.admitted_ps is None:
                part.request.admitted_ps = now

    def end_iteration(self, now: int) -> bool:
        """Count the computed tokens, stream, and let finished requests go.

        Return whether it finished a request or had admitted one.
        """
        parts, self.parts, self.end_ps = self.parts, [], None
        for part in parts:
            part.request.computed += part.new
            if part.request.uncomputed == 0:
                self._stream(part.request, now)
        self.check_conservation()
        is_finish = any(part.request.status == "finished" for part in parts)
        return is_finish or self._iteration_admitted

    def _stream(self, request: Request, now: int) -> None:
        request.generated += 1
        self._fruitless_preemptions = 0
        if request.generated == 1:
            request.first_token_ps = now
        if request.generated == request.output_tokens:
            self.last_token(request, now)

    def last_token(self, request: Request, now: int) -> None:
        """Finish a request that has streamed everything."""
        request.finish_ps = request.ended_ps = now
        request.status = "finished"
        self.running.remove(request)
        self.release_blocks(request)

    # Order.

    def key_of(self, request: Request, now: int) -> float:
        """Return the request's key in the order of the instance."""
        if callable(self.spec.order):
            return self.spec.order(request, now)
        return {"fcfs": 0, "priority": request.tier}[self.spec.order]

    def evaluate_keys(self, now: int) -> None:
        """At an iteration start, under a time-dependent order: look at all keys again."""
        if self.spec.time_dependent:
            for request in self.waiting + self.running:
                request.key = self.key_of(request, now)

    def queue(self) -> list[Request]:
        """Return the waiting requests in order."""
        if self.spec.order == "fcfs":
            return list(self.waiting)
        return sorted(self.waiting, key=lambda request: request.rank)

    def victim(self, candidates: list[Request]) -> Request:
        """Return the one to preempt among candidates that stand in the order of `running`."""
        if self.spec.order == "fcfs":
            return candidates[-1]
        return max(candidates, key=lambda request: request.rank)

    # Blocks, admission and preemption.

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks hold that many tokens."""
        return blocks_for(tokens, self.spec.block_size)

    def take_blocks(self, request: Request, n: int) -> None:
        """Move n free blocks to the request."""
        assert 0 <= n <= self.free_blocks
        self.free_blocks -= n
        request.blocks += n

    def release_blocks(self, request: Request) -> None:
        """Give all of the request's blocks back."""
        self.free_blocks += request.blocks
        request.blocks = 0

    def admit(self, request: Request, n_blocks: int) -> None:
        """Move a waiting request to the end of `running`, with its first blocks."""
        self.waiting.remove(request)
        self.running.append(request)
        self._has_admitted = True
        request.status = "running"
        request.prefill_tokens = request.known
        self.take_blocks(request, n_blocks)

    def preempt(self, request: Request) -> None:
        """Evict a running request: it waits again and will be recomputed."""
        self.running.remove(request)
        self.waiting.insert(0, request)
        request.status = "waiting"
        self.release_blocks(request)
        request.preemptions += 1
        request.recomputed_tokens += request.computed
        request.computed = 0
        self.n_preemptions += 1
        self._check_progress()

    def _check_progress(self) -> None:
        """Count preemptions since the last streamed token; too many mean that nothing moves on."""
        if self.has_moves:
            return
        self._fruitless_preemptions += 1
        if self._fruitless_preemptions > len(self.waiting) + len(self.running) + 1:
            raise NoProgressError(
                f"instance {self.index}: {self._fruitless_preemptions} preemptions in a row "
                "without one token streamed"
            )

    # Moves, faults and cancellations: what changes an instance from outside.

    @property
    def n_parked(self) -> int:
        """Seats taken by nobody who runs: of requests about to leave and about to come."""
        return len(self.parked) + self.reserved_seats

    @property
    def has_seat(self) -> bool:
        """Whether one more may run."""
        return len(self.running) + self.n_parked < self.spec.max_num_seqs

    @property
    def has_moves(self) -> bool:
        """Whether moves hold blocks or seats that they will give back."""
        return bool(self.parked) or self.reserved_blocks > 0 or self.reserved_seats > 0

    def reserve(self, n_blocks: int, n_seats: int = 0) -> bool:
        """Set blocks and a seat aside for a request that comes; False if they are not there."""
        if self.free_blocks - n_blocks < self.watermark_blocks or (n_seats and not self.has_seat):
            return False
        self.free_blocks -= n_blocks
        self.reserved_blocks += n_blocks
        self.reserved_seats += n_seats
        return True

    def unreserve(self, n_blocks: int, n_seats: int) -> None:
        """Give a reservation back."""
        assert n_blocks <= self.reserved_blocks and n_seats <= self.reserved_seats
        self.free_blocks += n_blocks
        self.reserved_blocks -= n_blocks
        self.reserved_seats -= n_seats
        self._waits_for_moves = False

    def park(self, request: Request) -> None:
        """Stop a running request; its blocks stay taken."""
        self.running.remove(request)
        self.parked.append(request)
        request.status = "parked"

    def unpark(self, request: Request) -> None:
        """Let a parked request run on here."""
        self.parked.remove(request)
        self._seat(request)

    def take_over(self, request: Request, source: "Engine") -> None:
        """Let a request parked at the source run on here, in the blocks and the seat reserved."""
        n_blocks = request.blocks
        source.parked.remove(request)
        source.release_blocks(request)
        source._waits_for_moves = False
        self.unreserve(n_blocks, 1)
        self.take_blocks(request, n_blocks)
        request.instance = self.index
        self._seat(request)

    def _seat(self, request: Request) -> None:
        """Put a request behind the last that decodes."""
        decoding = [k for k, r in enumerate(self.running) if self.decodes(r)]
        self.running.insert(max(decoding, default=-1) + 1, request)
        request.status = "running"
        self._waits_for_moves = False

    def drop(self, request: Request) -> None:
        """Let a request go that waits, or runs while no iteration is in flight."""
        assert all(part.request is not request for part in self.parts)
        (self.waiting if request in self.waiting else self.running).remove(request)
        self.release_blocks(request)
        request.computed = 0
        self._waits_for_moves = False

    def crash(self) -> list[Request]:
        """Lose the iteration in flight and everybody; return whom."""
        assert self.reserved_blocks == self.reserved_seats == len(self.parked) == 0
        self.parts, self.end_ps = [], None
        lost = self.everyone
        for request in lost:
            self.drop(request)
        assert self.free_blocks == self.spec.kv_blocks
        self._fruitless_preemptions = 0
        self._has_admitted = self.head_is_blocked = False
        return lost

    # Books.

    def check_conservation(self) -> None:
        """Assert that no block and no request is lost or doubled."""
        assert self.free_blocks >= 0
        held = sum(r.blocks for r in self.running + self.parked)
        assert self.free_blocks + held + self.reserved_blocks == self.spec.kv_blocks
        assert self.reserved_blocks >= 0 and self.reserved_seats >= 0
        for request in self.parked:
            assert request.status == "parked" and self.decodes(request)
        for request in self.waiting:
            assert request.status == "waiting" and request.blocks == 0 and request.computed == 0
        for request in self.running:
            assert request.status == "running" and request.uncomputed >= 0
            assert request.computed <= request.blocks * self.spec.block_size
        for part in self.parts:
            request = part.request
            assert request.status == "running" and 1 <= part.new <= request.uncomputed
            assert request.computed + part.new <= request.blocks * self.spec.block_size
        assert len({part.request for part in self.parts}) == len(self.parts)
        assert len(set(self.everyone)) == len(self.everyone)
        assert all(request.instance == self.index for request in self.everyone)

    def observe(self) -> Observation:
        """Return the truth about this instance."""
        return Observation(
            n_waiting=len(self.waiting),
            n_running=len(self.running),
            used_blocks=self.spec.kv_blocks - self.free_blocks,
            waiting_blocks=sum(self.blocks_for(request.known) for request in self.waiting),
            held_tokens=sum(
                request.prompt_tokens + request.predicted_tokens for request in self.everyone
            ),
        )

    def details(self) -> Details:
        """Return the rest of the truth."""
        head = self.queue()[:1]
        return Details(
            context_tokens=sum(request.computed for request in self.running),
            head_blocks=sum(self.blocks_for(request.known) for request in head),
            tier_counts=dict(Counter(request.tier for request in self.everyone)),
        )
