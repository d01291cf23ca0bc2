"""`servegym simulate`: one system, one run, its summary."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servegym.commands.arguments import Json, Path, Text, make_folder, note, parse
from servegym.commands.cluster_options import ClusterOptions
from servegym.commands.workload_options import DEFAULT_REQUESTS, WorkloadOptions

if TYPE_CHECKING:
    from servegym.simulator.result import Result
    from servegym.traces import Trace

DESCRIPTION = """Run one system once and print its summary; --out keeps every request.

examples:
  servegym simulate --workload azure-conv --system least-requests --load 0.9
  servegym simulate --trace trace.csv --system round-robin --instances 8 --horizon-s 600
  servegym simulate --workload sharegpt --rate 20 --json
  servegym simulate --scenario tight --load 1 --timeline run.html"""

LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
COUNTS = ("offered", "finished", "rejected", "failed", "cancelled", "unfinished")
FIGURES = {
    "slo_attainment": "SLO attainment",
    "goodput_per_s": "goodput [req/s]",
    "throughput_per_s": "throughput [req/s]",
    "preemptions": "preemptions",
    "busy_fraction": "busy fraction",
    "max_wait_s": "longest wait [s]",
    "gpu_seconds_per_slo_met": "GPU-seconds per SLO-met request",
}
EVENTS = {  # shown where there are any
    "holds": "holds",
    "admission_rejections": "rejected by admission",
    "moves": "moves",
    "aborted_moves": "aborted moves",
    "scale_ups": "scale-ups",
    "scale_downs": "scale-downs",
    "crashes": "crashes",
}


@dataclass(kw_only=True)
class Options:
    """What to run."""

    system: Text = None
    """The system, `servegym list systems` (least-requests)."""
    out: Path = None
    """Folder for trace.parquet, requests.parquet and manifest.json."""
    timeline: Path = None
    """File for the run as a web page: every request, KV use and queues, to zoom into."""
    json_: Json = False
    """Print the summary as one JSON document."""
    served: WorkloadOptions = field(default_factory=WorkloadOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def run(arguments: Sequence[str]) -> int:
    """Simulate, print the summary, and save where asked to."""
    options = parse(Options, arguments, "simulate", DESCRIPTION)
    make_folder(options.out)
    served = options.served
    config = options.cluster.to_config()
    trace, rate_per_s = served.load_trace(), served.rate
    if trace is None:
        trace, rate_per_s = draw(served), None
    if served.tier_mix is not None:
        trace = trace.assign_tiers(served.tier_mix, served.seed, config.tiers)
    from servegym.baselines.simulate import simulate
    from servegym.baselines.systems import find_system
    from servegym.experiments.idle_settings import idle_settings
    from servegym.experiments.progress import announce_compilation

    system = find_system("least-requests" if options.system is None else options.system)
    announce_compilation()
    result = simulate(
        trace,
        config,
        system,
        seed=served.seed,
        horizon_s=served.horizon_s,
        load=served.load,
        rate_per_s=rate_per_s,
    )
    summary = result.summary()
    idle = idle_settings(result.config, result.trace, served.tier_mix, summary["holds"])
    summary["warnings"] = [*summary["warnings"], *load_warnings(result), *idle]
    print(
        json.dumps(summary, indent=2, allow_nan=False) if options.json_ else summary_text(summary)
    )
    if options.out is not None:
        result.save(options.out)
        note(f"wrote {options.out}")
    if options.timeline is not None:
        from servegym.experiments.timeline import timeline

        note(f"wrote {timeline(result, options.timeline)}")
    return 0


def draw(served: WorkloadOptions) -> "Trace":
    """Return a trace of the fitted workload, at --rate or at its recorded rate."""
    from servegym.traces import generate, workload

    model = workload(served.workload_name)
    rate_per_s = model.recorded_rate_per_s or (1.0 if served.load else None)
    rate_per_s = rate_per_s if served.rate is None else served.rate
    if served.rate is not None and served.load is not None:
        raise ValueError("--load and --rate exclude each other")
    if rate_per_s is None:
        raise ValueError(f"{model.name} was recorded without times; give --load or --rate")
    n_requests = DEFAULT_REQUESTS if served.requests is None else served.requests
    return generate(model, n_requests, rate_per_s, served.seed, served.arrivals or "poisson")


def load_warnings(result: "Result") -> list[str]:
    """Return what to know of the load of a run: the one asked for, else that of its rate."""
    from servegym.baselines.saturation import saturation_rate
    from servegym.experiments.notes import overload_note

    load, rate_per_s = result.offered_load, result.trace.mean_rate_per_s
    if load is None and rate_per_s is not None:
        try:
            load = rate_per_s / saturation_rate(result.trace, result.config)
        except ValueError:  # no request fits an instance: the counts say so
            return []
    warning = None if load is None else overload_note(load)
    return [] if warning is None else [warning]


def summary_text(summary: dict[str, Any]) -> str:
    """Return the summary as aligned lines: counts, latencies in seconds, figures, warnings."""
    counts = ", ".join(f"{summary[c]:,} {c}" for c in COUNTS if summary[c] or c in COUNTS[:2])
    lines = [
        f"{summary['system']}: {counts}",
        f"{'seconds':<8}" + "".join(f"{s:>10}" for s in STATISTICS),
    ]
    for key, label in LATENCIES.items():
        lines.append(f"{label:<8}" + "".join(f"{shown(summary[key][s]):>10}" for s in STATISTICS))
    lines += [f"{label:<34}{shown(summary[key])}" for key, label in FIGURES.items()]
    lines += [f"{label:<34}{summary[key]:,}" for key, label in EVENTS.items() if summary[key]]
    lines.append(f"{'lengths predicted by':<34}{summary['estimator']}")
    return "\n".join([*lines, *(f"note: {warning}" for warning in summary["warnings"])])


def shown(amount: float | None) -> str:
    """Return four significant digits; - where undefined."""
    if amount is None:
        return "-"
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:.4g}"
