"""The lists of systems and of policies: as records for JSON, as text for people.

A system stands on a line of its own, what it sets and where it comes from below it; policies stand under their kind.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servegym.simulator.policy import Param, Policy

Record = dict[str, Any]
INDENT = "    "


def system_records() -> list[Record]:
    """Return every system: name, summary, source, its parts and the fields it sets, and its parameters by part."""
    from servegym.baselines.systems import PARTS, find_system, system_names

    found = []
    for system in map(find_system, system_names()):
        named = {part: system.settings[part] for part in PARTS if part in system.settings}
        params = {
            part: [param_record(param, system.params_of(part)) for param in policy.params]
            for part, policy in system.parts.items()
            if policy.params
        }
        others = {
            name: value
            for name, value in system.settings.items()
            if name not in PARTS and not name.endswith("_params")
        }
        found.append(
            {
                "name": system.name,
                "summary": system.summary,
                "source": system.source,
                "parts": {"dispatch": system.dispatch} | named,
                "fields": others,
                "params": params,
            }
        )
    return found


def policy_records() -> list[Record]:
    """Return every registered policy: kind, name, summary, source and parameters."""
    from servegym.simulator.policy import SIGNATURES, find_policy, policy_names

    return [
        policy_record(find_policy(kind, name)) for kind in SIGNATURES for name in policy_names(kind)
    ]


def policy_record(policy: "Policy") -> Record:
    """Return what there is to know of a policy."""
    return {
        "kind": policy.kind,
        "name": policy.name,
        "summary": policy.summary,
        "source": policy.source,
        "is_oracle": policy.is_oracle,
        "params": [param_record(param, {}) for param in policy.params],
    }


def param_record(param: "Param", given: Mapping[str, float]) -> Record:
    """Return a parameter; default is what holds if the user sets nothing, None where the trace decides."""
    default = given.get(param.name, param.default)
    return {
        "name": param.name,
        "default": None if callable(default) else default,
        "unit": param.unit,
        "low": param.low,
        "high": param.high,
        "is_whole": param.is_whole,
    }


def param_text(param: Record) -> str:
    """Return a parameter as it is written on the command line, with its range."""
    default = param["default"]
    shown = "<from the trace>" if default is None else f"{default:g}"
    whole = "whole, " if param["is_whole"] else ""
    span = f"{param['low']:,.10g} to {param['high']:,.10g} {param['unit']}".strip()
    return f"[{param['name']}={shown}, {whole}{span}]"


def with_params(record: Record) -> str:
    """Return what a policy does, and the range and default of what can be set."""
    return " ".join([record["summary"], *map(param_text, record["params"])])


def systems_text() -> str:
    """Return the systems, what each sets, with which parameters, and its source."""
    return "\n".join(line for record in system_records() for line in system_lines(record))


def system_lines(record: Record) -> list[str]:
    """Return the lines of one system; a dispatch policy alone needs to name no parts."""
    is_plain = record["parts"] == {"dispatch": record["name"]} and not record["fields"]
    lines = [f"{record['name']}  {record['summary']}"]
    if not is_plain:
        named = {**record["parts"], **record["fields"]}
        lines.append(INDENT + ", ".join(f"{name}={value}" for name, value in named.items()))
    for part, params in record["params"].items():
        prefix = "" if is_plain else f"{part}: "
        lines.append(INDENT + prefix + " ".join(map(param_text, params)))
    return [*lines, f"{INDENT}source: {record['source']}"]


def policies_text() -> str:
    """Return the policies under their kinds."""
    from servegym.simulator.policy import SIGNATURES

    records, lines = policy_records(), []
    for kind in SIGNATURES:
        lines.append(kind)
        for record in (each for each in records if each["kind"] == kind):
            lines.append(f"{INDENT}{record['name']}  {with_params(record)} {{{record['source']}}}")
    return "\n".join(lines)
