"""sarathi: decodes first, then chunked prefill; a prompt's blocks are taken whole at admission.

Source: docs/engine.md section 5 (Vidur 7d47513, sarathi replica scheduler). `decode_running` is
also what vllm-v0 does in an iteration without a prefill.
"""

from reference.engine import Engine, Part
from reference.model import Request


def prompt_is_complete(request: Request) -> bool:
    """Return whether the prefill of its last admission is done; recomputed tokens belong to it."""
    return request.computed >= request.prefill_tokens


def decode_running(engine: Engine) -> list[Part]:
    """One token for each running request with a complete prompt, while blocks can be had."""
    decoding: list[Request] = []
    for request in [r for r in engine.running if prompt_is_complete(r)]:
        while engine.free_blocks == 0 and request in engine.running:
            engine.preempt(engine.victim([r for r in engine.running if r not in decoding]))
        if request not in engine.running:
            continue
        if request.computed + 1 > engine.spec.block_size * request.blocks:
            engine.take_blocks(request, 1)
        decoding.append(request)
    return [Part(request, 1, is_decode=True) for request in decoding]


class Sarathi(Engine):
    """max_num_batched_tokens is the chunk size: decodes and prompt tokens together."""

    default_watermark = 0.01
    budget_covers_seqs = True

    @property
    def capacity_blocks(self) -> int:
        """A decode wants one free block, so one stays out of reach at least."""
        return self.spec.kv_blocks - max(1, self.watermark_blocks)

    def decodes(self, request: Request) -> bool:
        """Its prompt is complete."""
        return prompt_is_complete(request)

    def form(self, now: int) -> list[Part]:
        """Decodes, then the unfinished prompt, then admissions."""
        parts = decode_running(self)
        budget = self.spec.max_num_batched_tokens - len(parts)
        unfinished = [r for r in self.running if not prompt_is_complete(r)]
        assert len(unfinished) <= 1
        for request in unfinished:
            new = min(request.uncomputed, budget)
            if new > 0:
                parts.append(Part(request, new, is_decode=False))
                budget -= new
        return parts + self._admit_waiting(budget)

    def _admit_waiting(self, budget: int) -> list[Part]:
        parts = []
        for request in self.queue():
            if budget <= 0 or not self.has_seat:
                break
            n_blocks = self.blocks_for(request.known)
            if self.free_blocks - n_blocks < self.watermark_blocks:
                self.head_is_blocked = True
                if self.spec.bypass_blocked:
                    continue
                break
            self.admit(request, n_blocks)
            new = min(request.known, budget)
            parts.append(Part(request, new, is_decode=False))
            budget -= new
        return parts
