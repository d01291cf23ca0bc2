"""What all engine modes share: order, preemption, block ledger, progress, what a router sees.

Source: docs/engine.md sections 3, 8 and 9. A mode says which requests an iteration holds (`form`)
and which requests fit; this file runs the iteration and keeps the books, asserting conservation
each time.
"""

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
        self.free_blocks = spec.kv_blocks
        self.parts: list[Part] = []
        self.end_ps: int | None = None
        self.n_iterations = 0
        self.n_preemptions = 0
        self.n_blocked_heads = 0  # iterations that left out a waiting head which did not fit
        self.head_is_blocked = False  # so in the iteration being formed
        self._fruitless_preemptions = 0

    # What each mode says.

    def form(self, now: int) -> list[Part]:
        """Choose the parts of the next iteration: admit, take blocks, preempt."""
        raise NotImplementedError

    @property
    def capacity_blocks(self) -> int:
        """The largest `need` that ever fits."""
        raise NotImplementedError

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
        return self.end_ps is None and bool(self.waiting or self.running)

    def place(self, request: Request, now: int) -> None:
        """Put an arriving request at the end of the queue."""
        request.instance = self.index
        request.status = "waiting"
        request.key = self._key(request, now)
        self.waiting.append(request)

    def start_iteration(self, now: int) -> None:
        """Form iterations until one schedules something, and start that one."""
        while True:
            self.evaluate_keys(now)
            n_preemptions = self.n_preemptions
            parts = self.form(now)
            if parts:
                return self.launch(parts, now)
            self.check_conservation()
            if self.n_preemptions == n_preemptions:
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
        )
        if self.end_ps > LAST_PS:
            raise OverflowError(f"instance {self.index}: time passes {LAST_PS} ps")
        self.n_iterations += 1
        self.n_blocked_heads += self.head_is_blocked
        self.head_is_blocked = False
        for part in parts:
            if part.request.admitted_ps is None:
                part.request.admitted_ps = now

    def end_iteration(self, now: int) -> None:
        """Count the computed tokens, stream, and let finished requests go."""
        parts, self.parts, self.end_ps = self.parts, [], None
        for part in parts:
            part.request.computed += part.new
            if part.request.uncomputed == 0:
                self._stream(part.request, now)
        self.check_conservation()

    def _stream(self, request: Request, now: int) -> None:
        request.generated += 1
        self._fruitless_preemptions = 0
        if request.generated == 1:
            request.first_token_ps = now
        if request.generated == request.output_tokens:
            self.last_token(request, now)

    def last_token(self, request: Request, now: int) -> None:
        """Finish a request that has streamed everything."""
        request.finish_ps = now
        request.status = "finished"
        self.running.remove(request)
        self.release_blocks(request)

    # Order.

    def _key(self, request: Request, now: int) -> float:
        if callable(self.spec.order):
            return self.spec.order(request, now)
        return {"fcfs": 0, "priority": request.tier}[self.spec.order]

    def evaluate_keys(self, now: int) -> None:
        """At an iteration start, under a time-dependent order: look at all keys again."""
        if self.spec.time_dependent:
            for request in self.waiting + self.running:
                request.key = self._key(request, now)

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
        self._fruitless_preemptions += 1
        if self._fruitless_preemptions > len(self.waiting) + len(self.running) + 1:
            raise NoProgressError(
                f"instance {self.index}: {self._fruitless_preemptions} preemptions in a row "
                "without one token streamed"
            )

    # Books.

    def check_conservation(self) -> None:
        """Assert that no block and no request is lost or doubled."""
        assert self.free_blocks >= 0
        assert self.free_blocks + sum(r.blocks for r in self.running) == self.spec.kv_blocks
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
        everyone = self.waiting + self.running
        assert len(set(everyone)) == len(everyone)

    def observe(self) -> Observation:
        """Return the truth about this instance."""
        return Observation(
            n_waiting=len(self.waiting),
            n_running=len(self.running),
            used_blocks=sum(request.blocks for request in self.running),
            waiting_blocks=sum(self.blocks_for(request.known) for request in self.waiting),
            held_tokens=sum(
                request.prompt_tokens + request.predicted_tokens
                for request in self.waiting + self.running
            ),
        )
