"""vllm-v0: prefill first; an iteration that holds a prefill decodes nobody.

Source: docs/engine.md section 6 (Vidur 7d47513, vllm replica scheduler; the eviction for a waiting
urgent request is vLLM v0's priority policy).
"""

from reference.engine import Engine, Part
from reference.model import Request
from reference.sarathi import decode_running, prompt_is_complete


class VllmV0(Engine):
    """max_num_batched_tokens bounds the padded prompts: their number times the longest."""

    default_watermark = 0.01

    @property
    def capacity_blocks(self) -> int:
        """A decode wants one free block, so one stays out of reach at least."""
        return self.spec.kv_blocks - max(1, self.watermark_blocks)

    def fits(self, request: Request) -> bool:
        """Its whole sequence must also fit the budget, since it may be recomputed at once."""
        longest = request.prompt_tokens + request.output_tokens - 1
        return super().fits(request) and longest <= self.spec.max_num_batched_tokens

    def decodes(self, request: Request) -> bool:
        """Its prompt is complete."""
        return prompt_is_complete(request)

    def form(self, now: int) -> list[Part]:
        """Make room for an urgent head, then prefills if any can be admitted, else decodes."""
        if self.spec.order == "priority":
            self._evict_for_head()
        return self._admit_waiting() or decode_running(self)

    def _evict_for_head(self) -> None:
        if not self.waiting:
            return
        head = self.queue()[0]
        while self.running and not (self.has_seat and self._has_blocks(head)):
            victim = self.victim(self.running)
            if victim.tier <= head.tier:
                return
            self.preempt(victim)

    def _admit_waiting(self) -> list[Part]:
        admitted: list[Request] = []
        for request in self.queue():
            if not self.has_seat:
                break
            longest = max(r.known for r in [*admitted, request])
            is_within_budget = (len(admitted) + 1) * longest <= self.spec.max_num_batched_tokens
            if not (self._has_blocks(request) and is_within_budget):
                self.head_is_blocked = True
                if self.spec.bypass_blocked:
                    continue
                break
            self.admit(request, self.blocks_for(request.known))
            admitted.append(request)
        return [Part(request, request.known, is_decode=False) for request in admitted]

    def _has_blocks(self, request: Request) -> bool:
        return self.free_blocks - self.blocks_for(request.known) >= self.watermark_blocks
