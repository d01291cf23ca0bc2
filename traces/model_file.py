"""The text of a model file: a workload's records as JSON, each with its kind, read back equal.

A record is a frozen dataclass whose fields are numbers, texts, tuples or records; its kind is its
name in KINDS. Unknown kinds and fields are errors.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from servegym.traces.arrivals import PROCESSES
from servegym.traces.demand.categories import CategoryLengths, LengthDrift
from servegym.traces.demand.distributions import Fixed, PowerLaw, QuantileTable, Uniform, Zipf
from servegym.traces.demand.requests import Independent, Split
from servegym.traces.demand.tenants import TenantLengths
from servegym.traces.names import near_match

KINDS: dict[str, type] = {
    "quantiles": QuantileTable,
    "fixed": Fixed,
    "uniform": Uniform,
    "power-law": PowerLaw,
    "zipf": Zipf,
    "independent": Independent,
    "split": Split,
    "tenants": TenantLengths,
    "categories": CategoryLengths,
    "length-drift": LengthDrift,
    **PROCESSES,
}
NAMES = {cls: kind for kind, cls in KINDS.items()}


def encode(value: Any) -> Any:
    """Return a record, a tuple of them or a plain value as JSON values."""
    if is_dataclass(value):
        content = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {"kind": NAMES[type(value)], **content}
    return [encode(item) for item in value] if isinstance(value, tuple) else value


def decode(value: Any) -> Any:
    """Return what `encode` was given; ValueError names a kind or field that is not known."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind, content = value.get("kind"), {key: v for key, v in value.items() if key != "kind"}
    if kind not in KINDS:
        raise ValueError(f"kind = {kind!r}; {near_match(kind, KINDS)}")
    known = [field.name for field in fields(KINDS[kind])]
    for name in content:
        if name not in known:
            raise ValueError(f"{name!r} is no field of {kind}; {near_match(name, known)}")
    return KINDS[kind](**{name: decode(item) for name, item in content.items()})


def to_text(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each field of a record and each row of a table."""
    inner = indent + "  "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {to_text(v, inner)}" for key, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        return "[\n" + ",\n".join(inner + to_text(v, inner) for v in value) + "\n" + indent + "]"
    return json.dumps(value, ensure_ascii=False)
