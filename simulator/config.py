"""The configuration of a cluster: validated once, in Python, before any kernel sees it.

Names are those of vLLM where it has one. `None` means the profile's or the engine's own value, or that nobody decides:
without an admission policy all are accepted, without a migration policy nothing moves.
"""

import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from servegym.simulator.policy import BUILT_IN_ORDERS, Policy, find_policy
from servegym.simulator.profiles import Profile, find_profile
from servegym.traces.names import near_match

EngineName = Literal["vllm-v1", "vllm-v0", "sarathi", "static"]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Interval = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]

DEFAULT_WATERMARK = {"vllm-v1": 0.0, "vllm-v0": 0.01, "sarathi": 0.01, "static": 0.0}

# Named settings. tight: KV binds; with the default pool KV-based policies cannot differ on Azure conversations.
# no-paging: Orca's, every request reserves its max_tokens at admission, here 2,048 (a longer one takes them twice).
SCENARIOS: dict[str, dict[str, int]] = {
    "default": {},
    "tight": {"kv_blocks": 6000, "max_num_seqs": 128},
    "no-paging": {"block_size": 2048},
}


# Who decides what beside dispatch: kinds of policies, and the fields that name one (its parameters: `<field>_params`).
DECISIONS = {
    "ordering": "order",
    "estimation": "estimator",
    "remaining": "remaining",
    "admission": "admission",
    "queue": "queue",
    "migration": "migration",
    "scaling": "scaling",
}


class Fault(BaseModel):
    """Something that goes wrong with one instance from at_s on, for duration_s.

    crash: its requests retry or fail, it comes back empty. slow: iterations take `factor` times as long. metrics:
    routers see none of its refreshes. link: no moves from or to it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["crash", "slow", "metrics", "link"]
    instance: Annotated[int, Field(ge=0)]
    at_s: Seconds
    duration_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 60.0
    factor: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] = 2.0


class ClusterConfig(BaseModel):
    """A fleet of serving instances and what routers know about it. ValueError names field and value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instances: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    profile: str | tuple[str, ...] = "a100_sxm/Llama-3.1-8B/tp1"  # or a .json; a list mixes it
    engine: EngineName = "vllm-v1"
    max_num_seqs: Annotated[int, Field(ge=1, le=65536)] = 256
    max_num_batched_tokens: Count = 2048  # vllm-v0: padded
    kv_blocks: Count | None = None
    block_size: Annotated[int, Field(ge=1, le=65536)] = 16  # tokens
    watermark: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | None = None
    reserve_full_prompt: bool = True
    bypass_blocked: bool = False
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 32  # static
    batch_wait_s: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.01  # static
    order: str = "fcfs"  # fcfs | priority | an ordering policy
    order_params: dict[str, float] = {}
    tiers: Annotated[int, Field(ge=1, le=1000)] = 1
    routers: Annotated[int, Field(ge=1, le=65536)] = 1
    metrics_interval_s: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    estimator: str = "constant"
    estimator_params: dict[str, float] = {}
    remaining: str = "plug-in"  # what what-if takes as the tokens left
    remaining_params: dict[str, float] = {}
    snapshot_interval_s: Seconds = 0.0  # age of what what-if starts from; 0: the present
    queue_by: Literal["none", "tier", "tenant"] = "tier"  # the gateway's queues
    max_local_waiting: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = (
        None  # None: push; 0: pull
    )
    hold_timer_s: Interval = 0.1
    max_hold_s: Seconds = 60.0
    admission: str | None = None
    admission_params: dict[str, float] = {}
    queue: str | None = None
    queue_params: dict[str, float] = {}
    migration: str | None = None
    migration_params: dict[str, float] = {}
    rebalance_interval_s: Interval = 1.0
    migration_stages: Annotated[int, Field(ge=2, le=100)] = 2
    last_stage_blocks: Count | None = None  # most that may be left for the last stage
    link_gb_per_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 8.0
    scaling: str | None = None
    scaling_params: dict[str, float] = {}
    scaling_interval_s: Interval = 1.0
    startup_delay_s: Seconds = 5.0
    min_instances: Count = 1
    max_instances: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    faults: tuple[Fault, ...] = ()
    on_failure: Literal["retry", "fail"] = "retry"
    timeout_s: Interval | tuple[Interval | None, ...] | None = None  # or one a tier
    client_retries: Annotated[int, Field(ge=0, le=100)] = 0
    retry_backoff_s: Interval = 1.0
    reject_penalty_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    calibration: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    host_overhead_ms: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise ValueError(_one_line(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _refuse_flags_as_numbers(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f"{name} = {value}; must be no flag")
        return options

    @model_validator(mode="after")
    def _check_together(self) -> "ClusterConfig":
        for row in self.fleet_profiles:
            if self.kv_blocks is None and row.kv_blocks(self.block_size) < 1:
                raise ValueError(
                    f"block_size = {self.block_size}; {row.name} has less KV than one block"
                )
        if (
            self.engine in ("vllm-v1", "sarathi")
            and self.max_num_batched_tokens < self.max_num_seqs
        ):
            raise ValueError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens}; must be >= max_num_seqs = "
                f"{self.max_num_seqs} for {self.engine}"
            )
        if self.engine == "static" and self.bypass_blocked:
            raise ValueError(
                "bypass_blocked = True; the static engine closes its batch at a misfit"
            )
        if 0 < self.metrics_interval_s < 1e-9:
            raise ValueError(
                f"metrics_interval_s = {self.metrics_interval_s}; must be 0 or >= 1e-9"
            )
        self._check_policies()
        self._check_control()
        return self

    def _check_policies(self) -> None:
        for kind, field in DECISIONS.items():
            name, params = getattr(self, field), getattr(self, f"{field}_params")
            if name is not None and not (kind == "ordering" and name in BUILT_IN_ORDERS):
                policy = find_policy(kind, name)
                policy.check_params(params)
                policy.check_together(params)
            elif params:
                raise ValueError(f"{field}_params = {params}; {field} = {name} takes none")

    def _check_control(self) -> None:
        if self.max_instances is not None and self.max_instances < self.instances:
            raise ValueError(
                f"max_instances = {self.max_instances}; must be >= instances = {self.instances}"
            )
        if self.min_instances > self.instances:
            raise ValueError(
                f"min_instances = {self.min_instances}; must be <= instances = {self.instances}"
            )
        for number, fault in enumerate(self.faults):
            if fault.instance >= self.most_instances:
                raise ValueError(
                    f"faults.{number}.instance = {fault.instance}; there are 0 .. {self.most_instances - 1}"
                )
        if isinstance(self.timeout_s, tuple) and len(self.timeout_s) != self.tiers:
            raise ValueError(
                f"timeout_s = {self.timeout_s}; must be one number, or one a tier ({self.tiers})"
            )
        if self.client_retries and self.timeout_s is None:
            raise ValueError(f"client_retries = {self.client_retries}; needs timeout_s")
        if self.migration is not None:
            for row in self.fleet_profiles:
                if row.kv_bytes_per_token is None:
                    raise ValueError(
                        f"migration = {self.migration!r}; {row.name} has no kv_bytes_per_token"
                    )

    @property
    def most_instances(self) -> int:
        """The size of the fleet, absent instances included."""
        return self.instances if self.max_instances is None else self.max_instances

    def policy_of(self, kind: str) -> Policy | None:
        """Return who decides that: None if nobody, or a built-in order."""
        name = getattr(self, DECISIONS[kind])
        is_built_in = kind == "ordering" and name in BUILT_IN_ORDERS
        return None if name is None or is_built_in else find_policy(kind, name)

    def timeouts_s(self) -> list[float | None]:
        """Return the time limit of every tier, None for none."""
        if isinstance(self.timeout_s, tuple):
            return list(self.timeout_s)
        return [self.timeout_s] * self.tiers

    @cached_property
    def fleet_profiles(self) -> list[Profile]:
        """The distinct profiles; instance i has number i modulo their count. Files are read once."""
        names = (self.profile,) if isinstance(self.profile, str) else self.profile
        if not names:
            raise ValueError("profile = []; must name at least one profile")
        if len(names) > self.instances:
            raise ValueError(
                f"profile = {list(names)}; must be at most instances = {self.instances} of them"
            )
        return [find_profile(name) for name in names]

    @property
    def seats(self) -> int:
        """The most requests that run at once on one instance."""
        return self.batch_size if self.engine == "static" else self.max_num_seqs

    def kv_blocks_of(self, row: Profile) -> int:
        """Return the KV blocks of an instance with that profile."""
        return row.kv_blocks(self.block_size) if self.kv_blocks is None else self.kv_blocks

    def watermark_blocks_of(self, row: Profile) -> int:
        """Return the blocks that admission leaves free."""
        share = DEFAULT_WATERMARK[self.engine] if self.watermark is None else self.watermark
        return math.floor(share * self.kv_blocks_of(row))

    def largest_need_of(self, row: Profile) -> int:
        """Return the blocks of the largest request that an instance with that profile can ever hold."""
        blocks, watermark = self.kv_blocks_of(row), self.watermark_blocks_of(row)
        if self.engine == "static":
            return blocks
        return blocks - (watermark if self.engine == "vllm-v1" else max(1, watermark))


def _one_line(error: ValidationError) -> str:
    """Turn pydantic's report into one line: field = value; what is wrong."""
    first = error.errors()[0]
    name = ".".join(
        str(part)
        for part in first["loc"]
        if not str(part).startswith(("constrained-", "nullable", "tuple["))
    )
    if first["type"] == "extra_forbidden":
        return f"unknown option {name!r}; {near_match(name, ClusterConfig.model_fields)}"
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    return f"{name} = {first['input']!r}; {message[0].lower()}{message[1:]}"
