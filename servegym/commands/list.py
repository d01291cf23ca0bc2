"""`servegym list`: the names that other commands take."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated

import tyro

from servegym.commands.arguments import parse

if TYPE_CHECKING:
    from servegym.simulator.policy import Param, Policy
    from servegym.simulator.profiles import Profile
    from servegym.traces import Workload

DESCRIPTION = """Print names, one a line, with what each is.

examples:
  servegym list systems
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
    """Which names: systems, policies, orders, estimators, profiles, scenarios, workloads, arrivals or tier-mixes."""


def systems() -> list[Line]:
    """Return the named systems with their parameters."""
    from servegym.baselines.systems import find_system, system_names

    return [(name, with_params(find_system(name).policy)) for name in system_names()]


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

    return [(name, with_params(find_policy(kind, name))) for name in policy_names(kind)]


def with_params(policy: "Policy") -> str:
    """Return what a policy does, and the range and default of what can be set."""
    return " ".join([policy.summary, *(param_text(param) for param in policy.params)])


def param_text(param: "Param") -> str:
    """Return a parameter as it is written on the command line, with its range."""
    shown = "<from the trace>" if callable(param.default) else f"{param.default:g}"
    whole = "whole, " if param.is_whole else ""
    return (
        f"[{param.name}={shown}, {whole}{param.low:,.10g} to {param.high:,.10g} {param.unit}".strip()
        + "]"
    )


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
    "systems": systems,
    "policies": policies,
    "orders": orders,
    "estimators": estimators,
    "profiles": profiles,
    "scenarios": scenarios,
    "workloads": workloads,
    "arrivals": arrivals,
    "tier-mixes": tier_mixes,
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
