"""DriftSched's drift arms: what a bias learnt from completions is worth, and five orders, beside the published figures.

    python -m servegym.experiments.drift_arms

One instance, static batches of 32, pull; 1,000 requests, drained and a pause, then 2,000. Arms: `driftsched-words` (as
published: outputs counted in words and cut at the base) and `driftsched-tokens*` (true lengths, with and without
drift). Source: DriftSched; the workload and its stand-in lengths are in traces/driftsched.py.
In the words arm iterations last 1 / .75 times as long: a trace has one length a request, and a word takes the time of
its tokens. Left out: observed lengths and times of the paper's machine; the L4 profile is a datasheet estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro

from servegym.baselines.simulate import simulate, with_options
from servegym.experiments.statistics import Interval, mean_interval
from servegym.simulator.config import ClusterConfig
from servegym.simulator.seconds import PS_PER_S
from servegym.traces import Trace
from servegym.traces.driftsched import ARRIVALS, STARTS, TENANTS, WORDS_PER_TOKEN
from servegym.traces.workload import generate

WORKLOADS = tuple(
    f"driftsched-{arm}"
    for arm in ("words", "tokens", "tokens-step", "tokens-ramp", "tokens-category")
)
WORDS = WORKLOADS[0]
N_REQUESTS = sum(ARRIVALS.sizes)
CLUSTER = ClusterConfig(
    instances=1,
    profile="l4/Qwen1.5-1.8B/tp1",
    engine="static",
    batch_size=32,
    batch_wait_s=0.01,
    max_num_seqs=32,
    tiers=len(TENANTS),
)
STATIC, ADAPTIVE = 0, 1  # `adaptive` of the estimator
SYSTEMS = {
    "FIFO": "driftsched-fifo",
    "Priority": "driftsched-priority",
    "Weighted": "driftsched-weighted",
    "SJF": "driftsched-sjf",
    "Aging": "driftsched-aging",
}
PUBLISHED = {
    "MAE": "-38.8 %",
    "RMSE": "-40.5 %",
    "P50": "-42 %",
    "P99": "-16 %",
    "premium": "about 77 s under Priority",
    "batch": "about 427 s under Priority",
}


@dataclass(kw_only=True)
class Options:
    """Print the drift arms' tables, means over seeds with 95 % intervals of the changes."""

    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many seeds, from 0 on; the paper has 3 runs."""
    engine: str = "static"
    """static, as published, or vllm-v1: continuous batches of at most 32."""


def drained_trace(workload: str, seed: int, config: ClusterConfig, system: str) -> Trace:
    """Return a trace whose second phase begins when the first is served under that system, and a pause later.

    Tiers are the tenants: premium 0, standard 1, batch 2.
    """
    drawn = generate(workload, N_REQUESTS, None, seed, arrivals="fitted")
    assert drawn.tenant is not None
    tier_of = np.array([TENANTS.index(name) for name in drawn.tenant.names])
    tiers = tier_of[drawn.tenant.codes]
    second = STARTS[1]
    first = simulate(
        with_times(drawn, drawn.arrival_s, tiers).head(second), config, system, seed=seed
    )
    drained_s = int(first.records["finish_ps"].max()) / PS_PER_S
    arrival_s = drawn.arrival_s.copy()
    arrival_s[second:] += drained_s - arrival_s[second - 1]  # the pause is in the gaps
    return with_times(drawn, arrival_s, tiers)


def with_times(trace: Trace, arrival_s: np.ndarray, tiers: np.ndarray) -> Trace:
    """Return the trace with other arrivals and tiers."""
    return Trace(
        arrival_s,
        trace.prompt_tokens,
        trace.output_tokens,
        tier=tiers,
        category=trace.category,
        tenant=trace.tenant,
        name=trace.name,
        source=trace.source,
    )


def play(workload: str, order: str, adaptive: int, seed: int, engine: str) -> dict[str, Any]:
    """Return the summary of one run: its workload, order, estimator's arm and seed."""
    system = f"{SYSTEMS[order]}:adaptive={adaptive}"
    calibration = 1.0 / WORDS_PER_TOKEN if workload == WORDS else 1.0
    config = with_options(CLUSTER, {"engine": engine, "calibration": calibration})
    trace = drained_trace(workload, seed, config, system)
    return simulate(trace, config, system, seed=seed).summary()


def change_text(values: Sequence[float], reference: Sequence[float]) -> str:
    """Return the mean change in percent over seeds, and half its interval."""
    own, base = np.array(values), np.array(reference)
    return interval_text(mean_interval(100.0 * (own - base) / base))


def interval_text(change: Interval) -> str:
    """Return a change and half its interval, in percent."""
    if change.mean is None or change.low is None or change.high is None:
        return "-" if change.mean is None else f"{change.mean:+.1f} %"
    return f"{change.mean:+.1f} ± {(change.high - change.low) / 2:.1f} %"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def estimation_table(seeds: int, engine: str) -> str:
    """Return MAE and RMSE of the static and the adaptive estimate in every arm, under FIFO."""
    rows = []
    for workload in WORKLOADS:
        row = [workload.removeprefix("driftsched-")]
        static, adaptive = (
            [play(workload, "FIFO", adapts, seed, engine)["prediction"] for seed in range(seeds)]
            for adapts in (STATIC, ADAPTIVE)
        )
        for key in ("mae_tokens", "rmse_tokens"):
            before, after = ([each[key] for each in arm] for arm in (static, adaptive))
            row += [f"{np.mean(before):.1f}", f"{np.mean(after):.1f}", change_text(after, before)]
        rows.append(row)
    rows.append(["paper", "", "", PUBLISHED["MAE"], "", "", PUBLISHED["RMSE"]])
    header = ["arm", "MAE static", "adaptive", "change", "RMSE static", "adaptive", "change"]
    return table(header, rows)


def order_table(workload: str, seeds: int, engine: str) -> str:
    """Return E2E latencies under the five orders with the adaptive estimate."""
    rows, fifo = [], {}
    for system in SYSTEMS:
        played = [play(workload, system, ADAPTIVE, seed, engine) for seed in range(seeds)]
        values = {name: [each["e2e_s"][name] for each in played] for name in ("p50", "p99")}
        fifo = fifo or values
        row = [system]
        for name, own in values.items():
            change = "" if system == "FIFO" else change_text(own, fifo[name])
            row += [f"{np.mean(own):.0f}", change]
        for tier in (0, len(TENANTS) - 1):
            row.append(f"{np.mean([each['tiers'][tier]['e2e_s']['mean'] for each in played]):.0f}")
        busy_s = [each["busy_fraction"] * each["instance_seconds"] for each in played]
        rows.append([*row, f"{np.mean(busy_s):.0f}"])
    rows.append(
        ["paper", "", f"SJF {PUBLISHED['P50']}", "", f"SJF {PUBLISHED['P99']}"]
        + [PUBLISHED["premium"], PUBLISHED["batch"], "equal for all"]
    )
    header = ["order", "E2E P50, s", "to FIFO", "E2E P99, s", "to FIFO"]
    return table([*header, "premium mean, s", "batch mean, s", "GPU busy, s"], rows)


def report(seeds: int, engine: str) -> str:
    """Return all tables as Markdown."""
    parts = [
        f"Estimates, {N_REQUESTS:,} requests, {seeds} seeds, {engine} batches of 32, FIFO; tokens (words in `words`):",
        estimation_table(seeds, engine),
    ]
    for workload in WORKLOADS[:2]:
        parts.append(f"Orders on `{workload}`, adaptive estimates:")
        parts.append(order_table(workload, seeds, engine))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    print(report(options.seeds, options.engine))


if __name__ == "__main__":
    main()
