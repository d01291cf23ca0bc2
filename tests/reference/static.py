"""static: micro-batches that form, prefill together, decode together and end together.

Source: docs/engine.md section 7 (DriftSched's worker). Blocks are reserved for prompt and output,
so nobody is ever preempted.
"""

from reference.engine import Engine, NoProgressError, Part
from reference.model import InstanceSpec, Request


class Static(Engine):
    """`running` is the batch, from the first one taken. Seats, budget and watermark are unused."""

    def __init__(self, spec: InstanceSpec, index: int) -> None:
        if spec.bypass_blocked:
            raise ValueError("bypass_blocked = True; static does not have it")
        super().__init__(spec, index)
        self.is_forming = True
        self.last_taken_ps = 0  # means something once the batch holds somebody

    @property
    def capacity_blocks(self) -> int:
        """Every block."""
        return self.spec.kv_blocks

    @property
    def next_event_ps(self) -> int | None:
        """The end of the iteration in flight, or the moment at which a forming batch closes."""
        if self.is_forming and self.running:
            return self.last_taken_ps + self.spec.batch_wait_ps
        return self.end_ps

    def start_iteration(self, now: int) -> None:
        """Take who fits; if that closes the batch, prefill; or decode a closed batch."""
        self.evaluate_keys(now)
        if self.is_forming:
            self._take_waiting(now)
            if not self._closes(now):
                return self.check_conservation()
            self.is_forming = False
            self.launch([Part(r, r.prompt_tokens, is_decode=False) for r in self.running], now)
        else:
            left = [r for r in self.running if r.generated < r.output_tokens]
            self.launch([Part(r, 1, is_decode=True) for r in left], now)

    def _take_waiting(self, now: int) -> None:
        for request in self.queue():
            need = request.most_blocks(self.spec.block_size)
            if len(self.running) == self.spec.batch_size:
                return
            if self.free_blocks - need < 0:
                self.head_is_blocked = True
                return
            self.admit(request, need)
            self.last_taken_ps = now

    def _closes(self, now: int) -> bool:
        if not self.running:
            raise NoProgressError(f"instance {self.index} is idle and refuses its head")
        is_full = len(self.running) == self.spec.batch_size
        is_due = now >= self.last_taken_ps + self.spec.batch_wait_ps
        return is_full or bool(self.waiting) or is_due

    def decodes(self, request: Request) -> bool:
        """Nobody is moved out of a batch."""
        return False

    def accepts_pull(self, request: Request) -> bool:
        """While no batch is closed and it has a place."""
        return self.is_forming and len(self.running) + len(self.waiting) < self.spec.batch_size

    def crash(self) -> list[Request]:
        """Lose the batch, too."""
        self.is_forming = True
        return super().crash()

    def last_token(self, request: Request, now: int) -> None:
        """Nothing: it stays until the batch ends."""

    def end_iteration(self, now: int) -> bool:
        """Stream; when nobody has tokens left, end the batch."""
        had_admitted = super().end_iteration(now)
        if all(r.generated == r.output_tokens for r in self.running):
            for request in list(self.running):
                super().last_token(request, now)
            self.is_forming = True
        return had_admitted or self.is_forming
