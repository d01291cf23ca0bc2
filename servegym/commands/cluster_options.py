"""The options that describe a cluster, under the names of ClusterConfig.

None means not given: the scenario's value, else ClusterConfig's own default, which the help states
(a test compares the two). ClusterConfig alone judges values.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from servegym.commands.arguments import Flag, Names, Number, Settings, Text, Truth, WholeNumber

if TYPE_CHECKING:
    from servegym.simulator.config import ClusterConfig

FLAGS = ("bypass_blocked",)


@dataclass(kw_only=True)
class ClusterOptions:
    """The fleet, its engine and what its routers know."""

    scenario: Text = None
    """A named setting: default, or tight (KV binds: 6,000 blocks, 128 sequences)."""
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
    """Seconds that a rejected request adds to total latency (its tier's SLO)."""

    def to_config(self) -> "ClusterConfig":
        """Return the validated config; ValueError names field and value."""
        from servegym.simulator.config import SCENARIOS, ClusterConfig
        from servegym.traces.names import near_match

        if self.scenario is not None and self.scenario not in SCENARIOS:
            raise ValueError(
                f"unknown scenario {self.scenario!r}; {near_match(self.scenario, SCENARIOS)}"
            )
        options: dict[str, Any] = {**SCENARIOS[self.scenario or "default"]}
        for field in (f.name for f in fields(ClusterOptions) if f.name != "scenario"):
            value = getattr(self, field)
            if value is not None and not (field in FLAGS and value is False):
                options[field] = value
        if self.profile is not None:
            options["profile"] = self.profile[0] if len(self.profile) == 1 else tuple(self.profile)
        return ClusterConfig(**options)
