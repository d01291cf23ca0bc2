"""`servegym list`: the names that other commands take."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated

import tyro

from servegym.commands.arguments import Json, parse
from servegym.commands.env_lists import env_records, envs_text
from servegym.commands.policy_lists import (
    Record,
    policies_text,
    policy_record,
    policy_records,
    system_records,
    systems_text,
    with_params,
)

if TYPE_CHECKING:
    from servegym.simulator.profiles import Profile
    from servegym.traces import Workload

DESCRIPTION = """Print names, one a line, with what each is.

examples:
  servegym list systems
  servegym list policies --json
  servegym list arrivals"""
Line = tuple[str, str]


@dataclass(kw_only=True)
class Options:
    """What to list."""

    what: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAMES"),
    ]
    """Which: systems, policies, envs, orders, estimators, profiles, scenarios, workloads, arrivals or tier-mixes."""
    json_: Json = False
    """Print them as one JSON document."""


def orders() -> list[Line]:
    """Return the orders of waiting requests with their parameters."""
    built_in = [("fcfs", "By arrival."), ("priority", "By tier, 0 first, then by arrival.")]
    return built_in + of_kind("ordering")


def estimators() -> list[Line]:
    """Return the estimators with their parameters."""
    return of_kind("estimation")


def of_kind(kind: str) -> list[Line]:
    """Return the registered policies of a kind with their parameters."""
    from servegym.simulator.policy import find_policy, policy_names

    found = [find_policy(kind, name) for name in policy_names(kind)]
    return [(policy.name, with_params(policy_record(policy))) for policy in found]


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


def scenarios() -> list[Line]:
    """Return the scenarios with what each sets."""
    from servegym.simulator.config import SCENARIOS

    texts = {
        name: ", ".join(f"{option}={value:,}" for option, value in options.items())
        for name, options in SCENARIOS.items()
    }
    return [(name, text or "nothing is set") for name, text in texts.items()]


def arrivals() -> list[Line]:
    """Return the arrival processes with their parameters; some take more than numbers."""
    from servegym.traces.arrivals import PROCESSES

    own = ("fitted", "The workload's own process, stretched in time to the rate asked for.")
    return [own, *((name, process_text(kind)) for name, kind in PROCESSES.items())]


def process_text(kind: type) -> str:
    """Return what a process is, and its parameters as they are written on the command line."""
    about = (inspect.getdoc(kind) or "").partition("\n\n")[0]
    listed = fields(kind)
    if any(each.type not in (float, int) for each in listed):
        return f"{about} [from Python: {', '.join(each.name for each in listed)}]".replace(
            "\n", " "
        )
    shown = [
        each.name + ("=X" if each.default is MISSING else f"={each.default:g}") for each in listed
    ]
    return " ".join([about, *(f"[{text}]" for text in shown)]).replace("\n", " ")


def tier_mixes() -> list[Line]:
    """Return the tier mixes with their percentages at 2, 3 and 5 tiers."""
    from servegym.traces.tier_mixes import mix_names, tier_fractions

    def shares(mix: str, tiers: int) -> str:
        return "/".join(f"{100 * share:.3g}" for share in tier_fractions(mix, tiers))

    return [(mix, "   ".join(f"{shares(mix, n)} %" for n in (2, 3, 5))) for mix in mix_names()]


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
    "orders": orders,
    "estimators": estimators,
    "profiles": profiles,
    "scenarios": scenarios,
    "workloads": workloads,
    "arrivals": arrivals,
    "tier-mixes": tier_mixes,
}
# Those with more to say than a line: as records, and as text.
LONG: dict[str, tuple[Callable[[], list[Record]], Callable[[], str]]] = {
    "systems": (system_records, systems_text),
    "policies": (policy_records, policies_text),
    "envs": (env_records, envs_text),
}


def run(arguments: Sequence[str]) -> int:
    """Print one list."""
    options = parse(Options, arguments, "list", DESCRIPTION)
    known = [*LONG, *LISTS]
    if options.what not in known:
        from servegym.traces.names import near_match

        raise ValueError(f"nothing called {options.what!r}; {near_match(options.what, known)}")
    if options.json_:
        print(json.dumps(records_of(options.what), indent=2, allow_nan=False))
    else:
        print(text_of(options.what))
    return 0


def records_of(what: str) -> list[Record]:
    """Return a list as plain values."""
    if what in LONG:
        return LONG[what][0]()
    return [{"name": name, "about": text} for name, text in LISTS[what]()]


def text_of(what: str) -> str:
    """Return a list as text, names first."""
    if what in LONG:
        return LONG[what][1]()
    lines = LISTS[what]()
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in lines)
