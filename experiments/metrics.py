"""The metrics that a comparison reports: means, paired differences and verdicts.

Each metric is a column of the runs (one row per system and seed) under its name in
`Result.summary()`; what it means is in docs/glossary.md and, once, in simulator/metrics.py. The
interval of a mean is clipped to what the metric can be (no attainment above 100 %, no count below
0); that of a difference is not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servegym.experiments.statistics import (
    Direction,
    Interval,
    Values,
    Verdict,
    mean_interval,
    paired_difference,
    verdict,
)


@dataclass(frozen=True)
class Metric:
    """One column of the runs, times `scale` in `unit`. better: where the metric improves.

    least, most: what its mean can be, in `unit`.
    """

    key: str
    label: str
    unit: str
    better: Direction
    scale: float = 1.0
    least: float = 0.0
    most: float = math.inf


METRICS = (
    Metric("e2e_mean_s", "E2E mean", "s", "lower"),
    Metric("e2e_p99_s", "E2E P99", "s", "lower"),
    Metric("ttft_mean_s", "TTFT mean", "s", "lower"),
    Metric("ttft_p99_s", "TTFT P99", "s", "lower"),
    Metric("tpot_mean_s", "TPOT mean", "ms", "lower", 1_000.0),
    Metric("slo_attainment", "SLO attainment", "%", "higher", 100.0, most=100.0),
    Metric("goodput_per_s", "goodput", "req/s", "higher"),
    Metric("preemptions", "preemptions", "", "lower"),
)
# Requests that have no latency: reported where there are any.
UNSERVED = (
    Metric("rejected", "rejected", "requests", "lower"),
    Metric("unfinished", "unfinished", "requests", "lower"),
)
# What the cluster did beside serving, reported where it did it; a move is neither good nor bad.
EVENTS = (
    Metric("holds", "holds", "rounds", "neither"),
    Metric("admission_rejections", "rejected by admission", "requests", "lower"),
    Metric("moves", "moves", "", "neither"),
    Metric("aborted_moves", "aborted moves", "", "neither"),
    Metric("scale_ups", "scale-ups", "", "neither"),
    Metric("scale_downs", "scale-downs", "", "neither"),
    Metric("crashes", "crashes", "", "neither"),
)


@dataclass(frozen=True)
class Line:
    """What a comparison says about one metric of one system, in the metric's unit.

    difference: system - reference over the seeds; None for the reference itself. verdict: None where
    there is no interval to judge.
    """

    metric: Metric
    system: str
    mean: Interval
    difference: Interval | None
    difference_percent: float | None  # of the reference's mean
    verdict: Verdict | Literal["reference"] | None


def metrics_of(runs: pd.DataFrame) -> list[Metric]:
    """Return METRICS, and those of UNSERVED and EVENTS that are not 0 in every run."""
    return [*METRICS, *(metric for metric in (*UNSERVED, *EVENTS) if any(runs[metric.key]))]


def metric_interval(metric: Metric, values: Values) -> Interval:
    """Return mean and interval of values in the metric's unit, clipped to what it can be."""
    return mean_interval(values).clipped(metric.least, metric.most)


def comparison_lines(
    runs: pd.DataFrame, reference: str, metrics: Sequence[Metric] = METRICS
) -> list[Line]:
    """Return a line per metric and system, in the order of the metrics and of the runs.

    runs: columns system, seed and every metric's key; every system has a row for every seed.
    """
    systems = list(dict.fromkeys(runs["system"].tolist()))
    lines = []
    for metric in metrics:
        table = runs.pivot(index="seed", columns="system", values=metric.key)
        values = {s: table[s].to_numpy(dtype=np.float64) * metric.scale for s in systems}
        for system in systems:
            base = None if system == reference else values[reference]
            lines.append(line_of(metric, system, values[system], base))
    return lines


def line_of(
    metric: Metric, system: str, own: NDArray[np.float64], base: NDArray[np.float64] | None
) -> Line:
    """Return the line of a system from its values and the reference's (None: it is the reference)."""
    mean = metric_interval(metric, own)
    if base is None:
        return Line(metric, system, mean, None, None, "reference")
    difference = paired_difference(own, base)
    share = percent(difference.mean, mean_interval(base).mean)
    return Line(metric, system, mean, difference, share, verdict(difference, metric.better))


def percent(part: float | None, whole: float | None) -> float | None:
    """Return 100 * part / whole; None where either is unknown or the whole is zero."""
    return 100.0 * part / whole if part is not None and whole else None


def to_record(line: Line) -> dict[str, Any]:
    """Return a line as a flat row: the columns of `Comparison.table()`.

    low, high: bounds of the mean's interval; difference_low, difference_high: of the difference's.
    n: seeds in which the metric is defined.
    """
    difference = line.difference or Interval(None, None, None, 0)
    return {
        "metric": line.metric.label,
        "unit": line.metric.unit,
        "system": line.system,
        "n": line.mean.n,
        "mean": line.mean.mean,
        "low": line.mean.low,
        "high": line.mean.high,
        "difference": difference.mean,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "difference_percent": line.difference_percent,
        "verdict": line.verdict,
    }
