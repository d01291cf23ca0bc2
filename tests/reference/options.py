"""What the reference cluster is told beyond its instances: gateway, moves, scaling, faults, clients.

Source: docs/engine.md sections 10 to 15. Left out: validation of user input; the package does that.
"""

from dataclasses import dataclass
from typing import Literal

from reference.model import PS_PER_S

ACCEPT, HOLD, REJECT = "accept", None, "reject"  # what an admission policy says


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One line of the schedule."""

    kind: Literal["crash", "slow", "metrics", "link"]
    instance: int
    at_ps: int
    duration_ps: int
    factor: float = 1.0

    @property
    def end_ps(self) -> int:
        """The first instant at which it is over."""
        return self.at_ps + self.duration_ps


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fields are named as those of ClusterConfig. An interval of 0 means never."""

    queue_by: Literal["none", "tier", "tenant"] = "none"
    max_local_waiting: int | None = None  # None: push; 0: pull
    hold_timer_ps: int = 0
    max_hold_ps: int = 3600 * PS_PER_S
    rebalance_interval_ps: int = 0
    migration_stages: int = 2  # the last included; at least 2
    last_stage_blocks: int | None = None  # None: no limit
    link_bytes_per_s: float = 1e9
    scaling_interval_ps: int = 0
    startup_delay_ps: int = 0
    instances: int | None = None  # active at 0; None: all
    min_instances: int = 1
    faults: tuple[Fault, ...] = ()
    on_failure: Literal["retry", "fail"] = "retry"
    timeout_ps: int | tuple[int | None, ...] | None = None  # a tuple has one a tier
    client_retries: int = 0
    retry_backoff_ps: int = 0
    snapshot_interval_ps: int = 0

    @property
    def most_blocks_in_last_stage(self) -> float:
        """`last_stage_blocks` as a number."""
        return float("inf") if self.last_stage_blocks is None else self.last_stage_blocks

    def timeout_of(self, tier: int) -> int | None:
        """Return the time limit of a tier."""
        return self.timeout_ps[tier] if isinstance(self.timeout_ps, tuple) else self.timeout_ps
