"""What a picture says about the run it shows: its name, its setting in one line, its main numbers.

A run is a Result or what was loaded of one. Settings are named as in ClusterConfig and only where
they differ from the defaults.
"""

from collections.abc import Sequence
from typing import Any

from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result, SavedResult

Run = Result | SavedResult
LATENCIES = (
    ("ttft_s", "TTFT", "s", 1.0),
    ("tpot_s", "TPOT", "ms", 1e3),
    ("e2e_s", "E2E", "s", 1.0),
)
COUNTS = ("finished", "rejected", "failed", "cancelled", "unfinished")
NAMED = {"instances", "profile", "engine"}  # said in words


def as_list(runs: Run | Sequence[Run]) -> list[Run]:
    """Return one run or several as a list; ValueError if there is none."""
    found = [runs] if isinstance(runs, Run) else list(runs)
    if not found:
        raise ValueError("results = []; must hold at least one result")
    return found


def facts(run: Run) -> dict[str, Any]:
    """Return system, seed, load (None: not asked for) and trace of a run."""
    if isinstance(run, SavedResult):
        kept = run.manifest
        return {"system": kept["system"], "seed": kept["seed"], "load": kept["load"]}
    return {"system": run.system, "seed": run.seed, "load": run.offered_load}


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: its system, and whatever else tells the runs apart."""
    found = [facts(run) for run in runs]
    names = [str(fact["system"]) for fact in found]
    for key, text in (("load", "load {:g}"), ("seed", "seed {}")):
        if len(set(names)) < len(names) and len({fact[key] for fact in found}) > 1:
            parts = ["" if f[key] is None else ", " + text.format(f[key]) for f in found]
            names = [name + part for name, part in zip(names, parts, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name}, run {k + 1}" for k, name in enumerate(names)]
    return names


def setting(run: Run) -> str:
    """Return one line: how many requests of what, on which cluster, how fast."""
    n, config, load = len(run.requests), run.config, facts(run)["load"]
    rate = run.trace.mean_rate_per_s
    pace = ", all at once" if rate is None else f" at {rate:.4g} requests/s"
    if load is not None:
        pace += f" (load {load:g})"
    return (
        f"{n:,} requests of {run.trace.name or 'an unnamed trace'}{pace} on {cluster_text(config)}"
    )


def cluster_text(config: ClusterConfig) -> str:
    """Return the fleet, the engine and what differs from the defaults."""
    profile = config.profile if isinstance(config.profile, str) else " + ".join(config.profile)
    return f"{config.instances} × {profile} {engine_text(config)}"


def engine_text(config: ClusterConfig) -> str:
    """Return "(vllm-v1, kv_blocks=6000)": the engine and what else differs from the defaults."""
    return f"({', '.join([config.engine, *changed_options(config, NAMED)])})"


def settings_text(config: ClusterConfig) -> str:
    """Return "instances=8, kv_blocks=6000": all that differs from the defaults; "" for nothing."""
    return ", ".join(changed_options(config))


def changed_options(config: ClusterConfig, exclude: set[str] | None = None) -> list[str]:
    """Return "name=value" for every field that differs from its default."""
    changed = config.model_dump(exclude_defaults=True, exclude=exclude)
    return [f"{name}={value}" for name, value in changed.items() if value != {}]


def common_setting(runs: Sequence[Run]) -> str:
    """Return the line that fits all runs: the setting if they share it, else what they ran on."""
    settings = {setting(run) for run in runs}
    if len(settings) == 1:
        return settings.pop()
    clusters = {cluster_text(run.config) for run in runs}
    traces = {run.trace.name or "an unnamed trace" for run in runs}
    return f"{' and '.join(sorted(traces))} on {' or '.join(sorted(clusters))}"


def numbers(summary: dict[str, Any]) -> str:
    """Return counts by status, mean and P99 of the latencies, and preemptions, of a summary."""
    counts = [f"{summary[name]:,} {name}" for name in COUNTS if summary[name]]
    parts = [", ".join(counts) or "no requests"]
    for key, label, unit, scale in LATENCIES:
        mean, p99 = summary[key]["mean"], summary[key]["p99"]
        if mean is not None and p99 is not None:
            parts.append(f"{label} mean {scale * mean:.3g} {unit}, P99 {scale * p99:.3g} {unit}")
    count = summary["preemptions"]
    return "; ".join([*parts, f"{count:,} preemption{'s' if count != 1 else ''}"])
