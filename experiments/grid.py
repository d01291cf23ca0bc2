"""The grid: every system plays the trace of every seed; one row a cell, and every cell is checked.

Common random numbers: within a seed all systems see identical arrivals and lengths, and a policy's
own random stream starts from that seed. A cell that fails says which system and seed it was.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servegym.baselines.simulate import simulate
from servegym.baselines.systems import System
from servegym.experiments.run_text import settings_text
from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result
from servegym.traces import Trace

STATUSES = ("finished", "rejected", "failed", "cancelled", "unfinished")
DISTRIBUTIONS = ("ttft", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
# What is kept of a summary besides counts and latencies; the manifest has the config.
PLAIN = (
    "slo_attainment",
    "goodput_per_s",
    "weighted_slo_attainment",
    "preemptions",
    "preempted_requests",
    "recomputed_tokens",
    "migrations",
    "span_s",
    "throughput_per_s",
    "output_tokens_per_s",
    "gpu_seconds",
    "gpu_seconds_per_slo_met",
    "busy_fraction",
    "jain_index",
    "max_wait_s",
    "total_latency_s",
    "rate_per_s",
    "workload_hash",
    "estimator",
)
# What the cluster did beside serving; in the table of a comparison where there are any.
COUNTERS = (
    "holds",
    "admission_holds",
    "admission_rejections",
    "moves",
    "refused_moves",
    "aborted_moves",
    "scale_ups",
    "scale_downs",
    "crashes",
    "client_retries",
)
# What routers see and who goes first: beside the text of all settings, to tell pooled runs apart.
SETTINGS = ("metrics_interval_s", "routers", "order")
OF_TIER = ("offered", "slo_attainment", "goodput_per_s")


class CellError(RuntimeError):
    """One run of a grid failed; the message names its system and seed."""


class ConservationError(AssertionError):
    """A run lost or invented requests: a defect of the simulator, never of its input."""


@dataclass(frozen=True)
class Cell:
    """What is kept of one run. row: one line of `Comparison.runs`.

    peak_kv_share: largest share of its KV blocks that an instance ever had in use. n_blocked_heads:
    iteration starts that left a waiting request out for want of blocks.
    """

    row: dict[str, Any]
    warnings: tuple[str, ...]
    peak_kv_share: float
    n_blocked_heads: int


def play_grid(
    systems: Mapping[str, System],
    traces: Mapping[int, Trace],
    config: ClusterConfig,
    horizon_s: float | None = None,
    follow: Callable[[Iterable[tuple[int, str]]], Iterable[tuple[int, str]]] = iter,
) -> list[Cell]:
    """Return one cell for every seed and system; `follow` may watch the (seed, system) pairs pass.

    CellError, or ValueError for bad input, names the system and the seed of the run that failed.
    """
    pairs = [(seed, name) for seed in traces for name in systems]
    return [
        play_cell(systems[name], seed, traces[seed], config, horizon_s)
        for seed, name in follow(pairs)
    ]


def play_cell(
    system: System, seed: int, trace: Trace, config: ClusterConfig, horizon_s: float | None
) -> Cell:
    """Run one system on one trace and check it; CellError names both if it fails."""
    try:
        result = simulate(trace, config, system, seed=seed, horizon_s=horizon_s)
        summary = result.summary()
        check_conservation(summary, n_offered(trace, horizon_s))
    except ValueError as error:
        raise ValueError(f"system {system.name!r}, seed {seed}: {error}") from error
    except Exception as error:
        text = f"system {system.name!r}, seed {seed}: {type(error).__name__}: {error}"
        raise CellError(text) from error
    row = {"system": system.name, "seed": seed} | flatten(summary) | settings_of(result.config)
    blocked = int(result.instances["n_blocked_heads"].sum())
    return Cell(row, tuple(summary["warnings"]), peak_kv_share(result), blocked)


def n_offered(trace: Trace, horizon_s: float | None) -> int:
    """Return the requests that arrive before the horizon."""
    end_s = np.inf if horizon_s is None else horizon_s
    return int(np.searchsorted(trace.arrival_s, end_s, side="left"))


def check_conservation(summary: Mapping[str, Any], n_arrived: int) -> None:
    """ConservationError unless offered = finished + rejected + failed + cancelled + unfinished."""
    counts = {status: summary[status] for status in STATUSES}
    if not summary["offered"] == sum(counts.values()) == n_arrived:
        told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        raise ConservationError(
            f"{n_arrived:,} requests arrived, {summary['offered']:,} were offered, but {told}"
        )


def settings_of(config: ClusterConfig) -> dict[str, Any]:
    """Return the columns that tell pooled runs apart; the estimator is in the summary.

    settings: all that differs from the defaults, as text; "" for nothing. And SETTINGS.
    """
    return {"settings": settings_text(config)} | {name: getattr(config, name) for name in SETTINGS}


def flatten(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary as one flat row; with several tiers, each tier's measures as tier0_... too."""
    row = {key: summary[key] for key in ("offered", *STATUSES, *PLAIN, *COUNTERS)} | latencies(
        summary, ""
    )
    row |= prediction_errors(summary["prediction"])
    if len(summary["tiers"]) > 1:
        for tier in summary["tiers"]:
            prefix = f"tier{tier['tier']}_"
            row |= latencies(tier, prefix) | {prefix + key: tier[key] for key in OF_TIER}
    return row


def prediction_errors(measured: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Return MAE and RMSE in tokens and MAPE as a share; None under the constant estimator."""
    keys = {
        "prediction_mae": "mae_tokens",
        "prediction_rmse": "rmse_tokens",
        "prediction_mape": "mape",
    }
    return {name: measured[key] if measured else None for name, key in keys.items()}


def latencies(summary: Mapping[str, Any], prefix: str) -> dict[str, float | None]:
    """Return the distributions of TTFT, TPOT and E2E as ttft_mean_s, ttft_p50_s, ..."""
    return {
        f"{prefix}{name}_{statistic}_s": summary[f"{name}_s"][statistic]
        for name in DISTRIBUTIONS
        for statistic in STATISTICS
    }


def peak_kv_share(result: Result) -> float:
    """Return the largest share of its KV blocks that an instance ever had in use."""
    capacity = result.engines["kv_blocks"][result.instances["engine"]]
    return float((1 - result.instances["least_free_blocks"] / capacity).max(initial=0.0))
