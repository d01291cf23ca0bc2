"""The text of a model file: a workload's records as JSON, each with its kind, read back equal.

A record is a frozen dataclass whose fields are numbers, texts, tuples or records; its kind is its
name in KINDS. Unknown kinds, and fields that are unknown or missing, are errors.
"""

import json
from dataclasses import MISSING, fields, is_dataclass
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
    return decode_fields(KINDS[kind], content, kind)


def decode_fields(cls: type[Any], content: Any, kind: str) -> Any:
    """Return a record of its fields as JSON; ValueError names a field that is unknown or missing."""
    if not isinstance(content, dict):
        raise ValueError(f"{kind} is an object of named fields, not {type(content).__name__}")
    known = {field.name: field.default is MISSING for field in fields(cls)}
    for name in content:
        if name not in known:
            raise ValueError(f"{name!r} is no field of {kind}; {near_match(name, known)}")
    if missing := [name for name, is_needed in known.items() if is_needed and name not in content]:
        raise ValueError(f"{kind} lacks {', '.join(missing)}")
    return cls(**{name: decode(item) for name, item in content.items()})


def to_text(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each field of a record and each row of a table."""
    inner = indent + "  "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {to_text(v, inner)}" for key, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        return "[\n" + ",\n".join(inner + to_text(v, inner) for v in value) + "\n" + indent + "]"
    return json.dumps(value, ensure_ascii=False)
