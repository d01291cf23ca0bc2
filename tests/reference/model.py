"""What the reference simulator is told and what it keeps: iteration times, instances, requests.

Source: docs/engine.md sections 1, 3 and 15. Time is int picoseconds, coefficients are milliseconds.
Left out: validation of user input; the package does that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000
LAST_PS = 9_200_000_000_000_000_000


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many KV blocks hold that many tokens."""
    return -(-tokens // block_size)


@dataclass(frozen=True)
class IterationTime:
    """The coefficients of one row of step_time.csv, in ms."""

    c0: float
    c_token: float = 0.0
    c_above_knee: float = 0.0
    knee: int = 0
    c_decode_step: float = 0.0
    c_seq: float = 0.0
    c_kv: float = 0.0
    c_prefill_step: float = 0.0
    c_prefill_attention: float = 0.0
    calibration: float = 1.0
    host_overhead_ms: float = 0.0

    def duration_ps(
        self,
        n_prefill: int,
        n_decode: int,
        kv_tokens: int,
        chunks: Sequence[tuple[int, int]],
        factor: float = 1.0,
    ) -> int:
        """Return the time of an iteration with P, B, KV and the (prefix, chunk) pairs behind PA.

        `round` is half to even, as `rint`. The order of the additions is part of the contract.
        `factor` is that of an instance made slow by a fault.
        """
        tokens = n_prefill + n_decode
        ms = self.c0 + self.c_token * tokens + self.c_above_knee * max(0, tokens - self.knee)
        if n_decode > 0:
            ms = ms + (self.c_decode_step + self.c_seq * n_decode)
        if n_prefill > 0:
            attention = sum(chunk * (2 * prefix + chunk + 1) for prefix, chunk in chunks) / 2
            ms = ms + (self.c_prefill_step + self.c_prefill_attention * attention)
        ms = self.calibration * ms + self.host_overhead_ms
        kv_ps = round(self.calibration * self.c_kv * 1e9)
        rest_ps = round(ms * 1e9)
        if factor != 1.0:
            rest_ps, kv_ps = round(rest_ps * factor), round(kv_ps * factor)
        return rest_ps + kv_ps * kv_tokens


@dataclass(eq=False)
class Request:
    """One request: what the trace says, then what has happened to it."""

    index: int  # place in the trace
    arrival_ps: int
    prompt_tokens: int
    output_tokens: int
    predicted_tokens: int = 0
    tier: int = 0
    tenant: int = 0

    generated: int = 0  # tokens streamed
    computed: int = 0  # known tokens whose KV is in blocks
    blocks: int = 0  # KV blocks held
    prefill_tokens: int = 0  # known tokens at its last admission: what its prefill covers
    admitted_ps: int | None = None  # start of its first iteration
    first_token_ps: int | None = None
    finish_ps: int | None = None
    preemptions: int = 0
    recomputed_tokens: int = 0
    migrations: int = 0
    attempt: int = 1  # how often its client asked
    ended_ps: int | None = None  # finished, rejected, failed or cancelled
    instance: int | None = None
    # new; held, queued (gateway); waiting, running, parked (instance);
    # finished, rejected, failed, cancelled; unfinished, not_offered
    status: str = "new"
    key: float = 0.0  # the order's key

    @property
    def known(self) -> int:
        """Tokens whose values are known: the prompt and what was streamed."""
        return self.prompt_tokens + self.generated

    @property
    def uncomputed(self) -> int:
        """Known tokens without KV."""
        return self.known - self.computed

    @property
    def is_in_system(self) -> bool:
        """Whether it has arrived and has not ended."""
        return self.status in ("held", "queued", "waiting", "running", "parked")

    @property
    def rank(self) -> tuple[float, int, int]:
        """Its place under every order but fcfs; the least goes first."""
        return (self.key, self.arrival_ps, self.index)

    def most_blocks(self, block_size: int) -> int:
        """Return `need`: the blocks it ever needs. The last output token never takes a slot."""
        return blocks_for(self.prompt_tokens + self.output_tokens - 1, block_size)


Key = Callable[[Request, int], float]


@dataclass(frozen=True, kw_only=True)
class InstanceSpec:
    """The configuration of one instance."""

    engine: str
    time: IterationTime
    kv_blocks: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    watermark: float | None = None  # fraction of kv_blocks; None: the engine's own
    reserve_full_prompt: bool = True
    bypass_blocked: bool = False
    batch_size: int = 32
    batch_wait_ps: int = 10 * PS_PER_MS
    order: str | Key = "fcfs"  # "fcfs", "priority" or key(request, now_ps)
    time_dependent: bool = False  # the key is evaluated at every iteration start
    kv_bytes_per_token: int = 1  # what a move copies

    def watermark_blocks(self, default: float) -> int:
        """Return the blocks that admission leaves free."""
        watermark = default if self.watermark is None else self.watermark
        return math.floor(watermark * self.kv_blocks)
