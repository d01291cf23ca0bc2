"""`servegym list`: the names that other commands take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from servegym.commands.arguments import parse

if TYPE_CHECKING:
    from servegym.simulator.profiles import Profile
    from servegym.traces import Workload

DESCRIPTION = """Print names, one a line, with what each is.

examples:
  servegym list systems
  servegym list profiles"""
Line = tuple[str, str]


@dataclass(kw_only=True)
class Options:
    """What to list."""

    what: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="{systems,policies,profiles,workloads}"),
    ]
    """Which names."""


def systems() -> list[Line]:
    """Return the named systems."""
    from servegym.baselines.systems import find_system, system_names

    return [(name, find_system(name).summary) for name in system_names()]


def policies() -> list[Line]:
    """Return every registered policy with its kind and its source."""
    from servegym.simulator.policy import SIGNATURES, find_policy, policy_names

    found = [find_policy(kind, name) for kind in SIGNATURES for name in policy_names(kind)]
    return [(p.name, f"{p.kind}: {p.summary} [{p.source}]") for p in found]


def profiles() -> list[Line]:
    """Return the iteration-time profiles with KV blocks, fit error, fitted range and source."""
    from servegym.simulator.profiles import profiles as table

    return [(name, profile_text(row)) for name, row in sorted(table().items())]


def profile_text(row: "Profile") -> str:
    """Return what a user chooses a profile by; estimates stand out."""
    blocks = "-" if row.kv_blocks_default is None else f"{row.kv_blocks_default:,}"
    if row.is_estimate:
        return f"{blocks:>7} KV blocks, DATASHEET ESTIMATE, never measured"
    error = "-" if row.fit_mape_pct is None else f"{row.fit_mape_pct:.1f} %"
    reach = "range not recorded"
    if row.max_prefill_tokens is not None and row.max_kv_tokens is not None:
        reach = f"to {row.max_prefill_tokens:,} prefill, {row.max_kv_tokens:,} KV tokens"
    return f"{blocks:>7} KV blocks, error {error:>6}, {reach}; {row.source}"


def workloads() -> list[Line]:
    """Return the workloads with mean lengths, recorded rate and arrivals, and source."""
    from servegym.traces import workload, workload_names

    return [(name, describe(workload(name))) for name in workload_names()]


def describe(model: "Workload") -> str:
    """Return a workload's figures, aligned, and its source."""
    from servegym.traces.arrivals import process_name

    prompt, output = model.mean_prompt_tokens, model.mean_output_tokens
    rate = model.recorded_rate_per_s
    shown = "no times" if rate is None else f"{rate:,.3g} req/s"
    shown = f"{rate:,.0f} req/s" if rate is not None and rate >= 1_000 else shown
    process = "" if model.arrivals is None else process_name(model.arrivals)
    lengths = f"mean {prompt:>6,.0f} in {output:>5,.0f} out tokens"
    return f"{lengths}, {shown:>11} {process:<9}  {model.source}"


LISTS: dict[str, Callable[[], list[Line]]] = {
    "systems": systems,
    "policies": policies,
    "profiles": profiles,
    "workloads": workloads,
}


def run(arguments: Sequence[str]) -> int:
    """Print one list."""
    options = parse(Options, arguments, "list", DESCRIPTION)
    if options.what not in LISTS:
        from servegym.traces.names import near_match

        raise ValueError(f"nothing called {options.what!r}; {near_match(options.what, LISTS)}")
    lines = LISTS[options.what]()
    width = max((len(name) for name, _ in lines), default=0)
    for name, text in lines:
        print(f"{name:<{width}}  {text}".rstrip())
    return 0
