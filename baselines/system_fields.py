"""The fields of ClusterConfig that a system may set: how the cluster is scheduled, not what it is.

Left out: the fleet, the engine and its memory (load 1.0 must be the same for all systems), tiers, faults and clients.
"""

from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from servegym.simulator.config import DECISIONS, ClusterConfig

FIELDS = (
    *DECISIONS.values(),
    "queue_by",
    "max_local_waiting",
    "hold_timer_s",
    "max_hold_s",
    "routers",
    "metrics_interval_s",
    "snapshot_interval_s",
    "rebalance_interval_s",
    "migration_stages",
    "last_stage_blocks",
    "scaling_interval_s",
    "min_instances",
    "max_instances",
)
NOBODY = "none"


def field_value(name: str, text: str) -> Any:
    """Return a field's value from its text, "none" as None where the field may be; ValueError names both."""
    adapter = adapter_of(name)
    if text == NOBODY and is_optional(name):
        return None
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ValueError(f"{name} = {text!r}; {message[0].lower()}{message[1:]}") from None


@cache
def adapter_of(name: str) -> TypeAdapter[Any]:
    """Return what validates that field alone."""
    info = ClusterConfig.model_fields[name]
    annotated: Any = Annotated[info.annotation, info]  # pyright: ignore[reportInvalidTypeForm]
    return TypeAdapter(annotated)


@cache
def is_optional(name: str) -> bool:
    """Return whether the field may be None."""
    try:
        adapter_of(name).validate_python(None)
    except ValidationError:
        return False
    return True
