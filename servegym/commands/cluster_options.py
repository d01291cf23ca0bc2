"""The options that describe a cluster, under the names of ClusterConfig.

None means not given: the scenario's value, else ClusterConfig's own default, which the help states
(a test compares the two). ClusterConfig alone judges values. Groups are for the reader of the help.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from servegym.commands.arguments import (
    Faults,
    Flag,
    Limits,
    Names,
    Number,
    Settings,
    Text,
    Truth,
    WholeNumber,
)

if TYPE_CHECKING:
    from servegym.simulator.config import ClusterConfig

FLAGS = ("bypass_blocked",)


@dataclass(kw_only=True)
class GatewayOptions:
    """Who gets in, and who waits where, before an instance has the request."""

    admission: Text = None
    """Admission policy: who is accepted, held or rejected (all are accepted)."""
    admission_params: Settings = None
    """Parameters of the admission policy."""
    queue: Text = None
    """Queue policy: whose head is dispatched next (the first by --order)."""
    queue_params: Settings = None
    """Parameters of the queue policy."""
    queue_by: Text = None
    """Queues at the gateway: none (one for all), one a tier, one a tenant (tier)."""
    max_local_waiting: WholeNumber = None
    """Most requests that may wait at an instance; 0: it takes what it can run at once (no limit)."""
    hold_timer_s: Number = None
    """Seconds after which a gateway that holds requests is asked again at the latest (0.1)."""
    max_hold_s: Number = None
    """Seconds that requests may be held when nothing else happens; then the run stops with an error (60.0)."""


@dataclass(kw_only=True)
class MovingOptions:
    """Moving requests between instances."""

    migration: Text = None
    """Migration policy (nothing moves)."""
    migration_params: Settings = None
    """Parameters of the migration policy."""
    rebalance_interval_s: Number = None
    """Seconds between two times that it is asked (1.0)."""
    migration_stages: WholeNumber = None
    """Most stages in which a running request's KV is copied (2)."""
    last_stage_blocks: WholeNumber = None
    """Most KV blocks that may be left for the last stage, else the move is given up (no limit)."""
    link_gb_per_s: Number = None
    """Gigabytes per second that an instance sends or receives (8.0)."""


@dataclass(kw_only=True)
class ScalingOptions:
    """Starting and draining instances."""

    scaling: Text = None
    """Scaling policy (the fleet stays as it is)."""
    scaling_params: Settings = None
    """Parameters of the scaling policy."""
    scaling_interval_s: Number = None
    """Seconds between two times that it is asked (1.0)."""
    startup_delay_s: Number = None
    """Seconds until an instance that was started takes requests (5.0)."""
    min_instances: WholeNumber = None
    """Fewest active instances (1)."""
    max_instances: WholeNumber = None
    """Most instances (as many as --instances)."""


@dataclass(kw_only=True)
class FaultOptions:
    """What goes wrong, and clients that lose patience."""

    faults: Faults = None
    """Faults: kind:instance:at:duration[:factor],..., times in seconds; kinds crash, slow, metrics and link (none)."""
    on_failure: Text = None
    """What becomes of a crashed instance's requests: retry or fail (retry)."""
    timeout_s: Limits = None
    """Seconds after which a client cancels its request, one or one a tier: 30 or 10,60,none (never)."""
    client_retries: WholeNumber = None
    """How often a client asks again after that (0)."""
    retry_backoff_s: Number = None
    """Seconds before it asks again the first time, doubled each time (1.0)."""


@dataclass(kw_only=True)
class ClusterOptions:
    """The fleet, its engine and what its routers know; a system's own parts go over what is set here."""

    scenario: Text = None
    """A named setting: default, tight (KV binds: 6,000 blocks, 128 sequences) or no-paging (Orca's memory)."""
    instances: WholeNumber = None
    """Serving instances (4)."""
    profile: Names = None
    """Iteration times, `servegym list profiles` (a100_sxm/Llama-3.1-8B/tp1) or a .json; several mix."""
    engine: Text = None
    """vllm-v1, vllm-v0, sarathi or static (vllm-v1)."""
    kv_blocks: WholeNumber = None
    """KV blocks of an instance (the profile's)."""
    block_size: WholeNumber = None
    """Tokens in a KV block (16)."""
    max_num_seqs: WholeNumber = None
    """Most requests that run at once on an instance (256)."""
    max_num_batched_tokens: WholeNumber = None
    """Token budget of an iteration (2048)."""
    order: Text = None
    """Order of waiting requests: fcfs, priority or an ordering policy (fcfs)."""
    order_params: Settings = None
    """Parameters of the ordering policy."""
    tiers: WholeNumber = None
    """Priority tiers that the cluster knows (1)."""
    estimator: Text = None
    """How output lengths are predicted (constant)."""
    estimator_params: Settings = None
    """Parameters of the estimator."""
    remaining: Text = None
    """What look-ahead takes as the tokens a request has left (plug-in)."""
    remaining_params: Settings = None
    """Parameters of that policy."""
    snapshot_interval_s: Number = None
    """Seconds between snapshots that look-ahead starts from; 0: the present (0.0)."""
    routers: WholeNumber = None
    """Routers that dispatch in turn, each knowing its own placements (1)."""
    metrics_interval_s: Number = None
    """Seconds between refreshes of what routers see; 0: always up to date (0.0)."""
    watermark: Number = None
    """Share of KV blocks that admission leaves free (the engine's)."""
    reserve_full_prompt: Truth = None
    """vllm-v1: admit only if the whole prompt fits (True)."""
    bypass_blocked: Flag = False
    """Let smaller requests pass one that does not fit (False)."""
    batch_size: WholeNumber = None
    """static: requests in a batch (32)."""
    batch_wait_s: Number = None
    """static: seconds to wait for a batch to fill (0.01)."""
    calibration: Number = None
    """Factor on iteration times (the profile's)."""
    host_overhead_ms: Number = None
    """Milliseconds added to every iteration (0.0)."""
    reject_penalty_s: Number = None
    """Seconds that a rejected, failed or cancelled request adds to total latency (its tier's SLO)."""
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    moving: MovingOptions = field(default_factory=MovingOptions)
    scaling: ScalingOptions = field(default_factory=ScalingOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)

    def to_config(self) -> "ClusterConfig":
        """Return the validated config; ValueError names field and value."""
        from servegym.baselines.system_fields import NOBODY, is_optional
        from servegym.simulator.config import SCENARIOS, ClusterConfig
        from servegym.traces.names import near_match

        if self.scenario is not None and self.scenario not in SCENARIOS:
            raise ValueError(
                f"unknown scenario {self.scenario!r}; {near_match(self.scenario, SCENARIOS)}"
            )
        options: dict[str, Any] = {**SCENARIOS[self.scenario or "default"]}
        for name, value in given_options(self).items():
            if value is not None and not (name in FLAGS and value is False):
                options[name] = None if value == NOBODY and is_optional(name) else value
        if self.profile is not None:
            options["profile"] = self.profile[0] if len(self.profile) == 1 else tuple(self.profile)
        return ClusterConfig(**options)


def given_options(group: Any) -> dict[str, Any]:
    """Return the options of a group and of the groups in it by name, those that were not given too."""
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(group)):
        value = getattr(group, name)
        found |= given_options(value) if is_dataclass(value) else {name: value}
    return {name: value for name, value in found.items() if name != "scenario"}
