"""The terms of rewards from the table of requests: what their sums over an episode must be.

    latency    -(end - arrival + penalty)          end: finished, dropped, or the last instant of the episode
    weighted   2^-tier times that
    slo        2^-tier, minus it if the SLO is missed; 0 for who is unfinished and not yet late
    ttft       -(first token - arrival); without a token -(end - arrival + penalty)

Plain sums over rows, against the kernels' running books (simulator/tally.py). Dropped: rejected, failed or cancelled.
"""

import math
from typing import Any

from servegym.simulator.result import Result
from servegym.simulator.slo import Slo, tier_weight

DROPPED = ("rejected", "failed", "cancelled")


def expected_terms(result: Result, slo: Slo, end_s: float) -> dict[str, float]:
    """Return what each term's sum must be for an episode that ended at end_s (`simulator/slo.py` has the limits)."""
    sums: dict[str, float] = {"latency": 0.0, "weighted_latency": 0.0, "slo": 0.0, "ttft": 0.0}
    for row in result.requests.to_dict("records"):
        weight = tier_weight(row["tier"])
        lost_s = _penalty_s(row, slo, result.config.reject_penalty_s)
        latency_s = _end_s(row, end_s) - row["arrival_s"] + lost_s
        has_token = not math.isnan(row["first_token_s"])
        sums["latency"] -= latency_s
        sums["weighted_latency"] -= weight * latency_s
        sums["ttft"] -= row["first_token_s"] - row["arrival_s"] if has_token else latency_s
        sums["slo"] += weight * _slo_sign(row, slo, end_s)
    return sums


def _end_s(row: dict[str, Any], end_s: float) -> float:
    return end_s if row["status"] == "unfinished" else row["finish_s"]


def _penalty_s(row: dict[str, Any], slo: Slo, reject_penalty_s: float | None) -> float:
    if row["status"] not in DROPPED:
        return 0.0
    if reject_penalty_s is not None:
        return reject_penalty_s
    return (1 + row["tier"]) * (slo.ttft_s + slo.tpot_s * (row["output_tokens"] - 1))


def _slo_sign(row: dict[str, Any], slo: Slo, end_s: float) -> int:
    """Return 1 for an SLO met, -1 for one missed, 0 for one that is still open."""
    factor = 1 + row["tier"]
    if row["status"] in DROPPED:
        return -1
    has_token, n_more = not math.isnan(row["first_token_s"]), row["output_tokens"] - 1
    first_s = row["first_token_s"] if has_token else end_s
    is_late = first_s - row["arrival_s"] > factor * slo.ttft_s
    if has_token and n_more:
        is_late |= (_end_s(row, end_s) - first_s) / n_more > factor * slo.tpot_s
    if is_late:
        return -1
    return 1 if row["status"] == "finished" else 0
