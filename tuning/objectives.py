"""What a study optimises: one number of a run, by name, and which way it improves.

    mean-e2e   total latency / requests offered: mean E2E where all are served; who is not costs its penalty (slo.py)
    p99-e2e    99th percentile of E2E of finished requests
    ttft-slo   share of offered requests whose TTFT is within their tier's limit
    goodput    share of offered requests that meet their tier's SLO, tier p counted 2^-p
    prediction-mae   mean absolute error of predicted output lengths, tokens

A tier's limits and weight depend on its number: ttft-slo and goodput do not compare runs with another number of tiers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from servegym.experiments.statistics import Direction
from servegym.simulator.result import Result
from servegym.simulator.slo import DEFAULT_SLO, Slo
from servegym.traces.names import near_match

ANY_TPOT = Slo(DEFAULT_SLO.ttft_s, 1e9)


@dataclass(frozen=True)
class Objective:
    """A number of a run. value: None where it is undefined. spans_tiers: comparable across numbers of tiers."""

    name: str
    label: str
    unit: str
    better: Direction
    value: Callable[[Result], float | None]
    spans_tiers: bool = True


def mean_e2e(result: Result) -> float | None:
    """Return seconds a request, None for none."""
    summary: dict[str, Any] = result.summary()
    return summary["total_latency_s"] / summary["offered"] if summary["finished"] else None


OBJECTIVES = {
    each.name: each
    for each in (
        Objective("mean-e2e", "mean E2E", "s", "lower", mean_e2e),
        Objective("p99-e2e", "P99 E2E", "s", "lower", lambda r: r.summary()["e2e_s"]["p99"]),
        Objective(
            "ttft-slo",
            "TTFT SLO attainment",
            "share",
            "higher",
            lambda r: r.summary(ANY_TPOT)["slo_attainment"],
            spans_tiers=False,
        ),
        Objective(
            "goodput",
            "tier-weighted SLO attainment",
            "share",
            "higher",
            lambda r: r.summary()["weighted_slo_attainment"],
            spans_tiers=False,
        ),
        Objective(
            "prediction-mae",
            "MAE of predicted lengths",
            "tokens",
            "lower",
            lambda r: r.prediction_error()["mae_tokens"],
        ),
    )
}


def find_objective(name: str) -> Objective:
    """Return the objective of that name; ValueError with the near match."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective {name!r}; {near_match(name, OBJECTIVES)}")
    return OBJECTIVES[name]
