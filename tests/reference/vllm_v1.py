"""vllm-v1: no phases, chunked prefill; running requests first, then admissions.

Source: docs/engine.md section 4 (vLLM 0.19, vllm/v1/core/sched/scheduler.py).
"""

from reference.engine import Engine, Part
from reference.model import Request


class VllmV1(Engine):
    """An iteration has max_num_batched_tokens tokens, whatever they are."""

    budget_covers_seqs = True

    @property
    def capacity_blocks(self) -> int:
        """All blocks but the watermark."""
        return self.spec.kv_blocks - self.watermark_blocks

    def admission_tokens(self, request: Request) -> int:
        """The known tokens, or the first chunk."""
        if self.spec.reserve_full_prompt:
            return request.known
        return min(request.known, self.spec.max_num_batched_tokens)

    def form(self, now: int) -> list[Part]:
        """Schedule the running requests, then, if nobody was preempted, admit."""
        n_preemptions = self.n_preemptions
        self.budget = self.spec.max_num_batched_tokens
        self.scheduled: dict[Request, int] = {}
        self._schedule_running()
        if self.n_preemptions == n_preemptions:
            self._admit_waiting()
        return [Part(r, new, self._is_decode(r)) for r, new in self.scheduled.items()]

    def _schedule_running(self) -> None:
        for request in list(self.running):
            if request not in self.running:
                continue  # preempted by one before it
            if self.budget == 0:
                return
            new = min(request.uncomputed, self.budget)
            missing = self.blocks_for(request.computed + new) - request.blocks
            while missing > self.free_blocks:
                victim = self.victim(self.running)
                self.budget += self.scheduled.pop(victim, 0)
                self.preempt(victim)
                if victim is request:
                    return
            self._schedule(request, new, missing)

    def _admit_waiting(self) -> None:
        for request in self.queue():
            if self.budget == 0 or not self.has_seat:
                return
            new = min(request.known, self.budget)
            must_fit = request.known if self.spec.reserve_full_prompt else new
            if self.free_blocks - self.blocks_for(must_fit) < self.watermark_blocks:
                self.head_is_blocked = True
                if self.spec.bypass_blocked:
                    continue
                return
            self.admit(request, 0)
            self._schedule(request, new, self.blocks_for(new))

    def _schedule(self, request: Request, new: int, n_blocks: int) -> None:
        self.take_blocks(request, n_blocks)
        self.scheduled[request] = new
        self.budget -= new

    def decodes(self, request: Request) -> bool:
        """It has streamed a token since its last admission."""
        return request.computed >= request.prefill_tokens

    def _is_decode(self, request: Request) -> bool:
        return request.generated >= 1 and request.uncomputed == 1
