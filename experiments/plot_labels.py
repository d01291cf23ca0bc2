"""What the measures are called in pictures: of one request, and of a run (columns of its table).

The metrics of a run are those of metrics.py; other statistics and single tiers (`tier0_ttft_p50_s`)
are named after the same pattern.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from servegym.experiments.metrics import METRICS, Metric
from servegym.traces.names import near_match


@dataclass(frozen=True)
class Measure:
    """One time of a request: its column, its name, and its unit after times `scale`.

    population: which requests have it, as a word after "requests".
    """

    key: str
    label: str
    unit: str
    scale: float
    population: str


MEASURES = {
    measure.key: measure
    for measure in (
        Measure("ttft_s", "time to first token (TTFT)", "s", 1.0, "with a first token"),
        Measure("tpot_s", "time per output token (TPOT)", "ms", 1e3, "finished"),
        Measure("e2e_s", "end-to-end latency (E2E)", "s", 1.0, "finished"),
        Measure("queue_s", "queue time", "s", 1.0, "started"),
    )
}


def find_measure(key: str) -> Measure:
    """Return a measure of requests; ValueError with the near match if there is none."""
    if key not in MEASURES:
        raise ValueError(f"unknown metric {key!r}; {near_match(key, MEASURES)}")
    return MEASURES[key]


def find_metric(key: str, columns: Iterable[str]) -> Metric:
    """Return a metric of runs; ValueError with the near match unless it is one of the columns."""
    known = list(columns)
    if key not in known:
        raise ValueError(f"unknown metric {key!r}; {near_match(key, known)}")
    for metric in METRICS:
        if metric.key == key:
            return metric
    tier = re.match(r"tier(\d+)_", key)
    name = key[tier.end() :] if tier else key
    of_tier = f" of tier {tier[1]}" if tier else ""
    latency = re.fullmatch(r"(ttft|tpot|e2e)_(mean|p\d+)_s", name)
    if latency:
        what, statistic = latency[1].upper(), latency[2].replace("p", "P")
        unit, scale = ("ms", 1e3) if latency[1] == "tpot" else ("s", 1.0)
        return Metric(key, f"{what} {statistic}{of_tier}", unit, "lower", scale)
    return plain_metric(key, name, of_tier)


def plain_metric(key: str, name: str, of_tier: str) -> Metric:
    """Return a metric that is no latency: known under its own name, or called like its column."""
    for metric in METRICS:
        if metric.key == name:
            return replace(metric, key=key, label=metric.label + of_tier)
    unit = "req/s" if name.endswith("_per_s") else "s" if name.endswith("_s") else ""
    text = name.removesuffix("_per_s").removesuffix("_s").replace("_", " ")
    return Metric(key, text + of_tier, unit, "lower")


def with_unit(text: str, unit: str) -> str:
    """Return "text [unit]"; a count has no unit."""
    return f"{text} [{unit}]" if unit else text
