"""A run as a dict of plain Python values: for notebooks, comparisons and manifests.

None where a measure is undefined; every distribution names its population. The span of a run is
from its first arrival to its end: the last request's end, or the horizon if any is unfinished.
Rates, instances and GPUs are counted over the span.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from servegym.simulator import metrics, unloaded
from servegym.simulator.accounting import LOW_BITS, Account, take_account
from servegym.simulator.move_table import move_counts
from servegym.simulator.prediction_error import prediction_error
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.slo import Slo, tier_weight
from servegym.simulator.state import CANCELLED, FAILED, FINISHED, REJECTED, UNFINISHED

if TYPE_CHECKING:
    from servegym.simulator.result import Result

MEASURES = ("ttft_s", "tpot_s", "e2e_s")
POPULATIONS = (
    "offered requests that streamed a first token",
    "finished requests of two or more output tokens",
    "finished requests",
)


def summarise(result: "Result", slo: Slo) -> dict[str, Any]:
    """Return the summary of a run under an SLO."""
    tiers = result.config.tiers
    limits = slo.by_tier(tiers, result.config.reject_penalty_s)
    account = take_account(
        result.records, result.trace.tier[: len(result.records)], limits, result.cut_ps
    )
    totals = account.totals
    span_s = span_of(result, account)
    weights = [tier_weight(tier) for tier in range(tiers)]
    return {
        "system": result.system,
        **counts_and_latencies(totals, account.percentiles[-1]),
        "slo": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s},
        **served_well(totals, span_s),
        "weighted_slo_attainment": metrics.slo_attainment(
            float(np.dot(weights, totals["slo_met"])), float(np.dot(weights, totals["offered"]))
        ),
        "tiers": [{"tier": tier} | of_tier(account, tier, span_s) for tier in range(tiers)],
        **work_of(totals),
        **events_of(result),
        **cost_of(result, totals, span_s),
        "jain_index": fairness(result),
        "max_wait_s": int(totals["longest_wait_ps"].max()) / PS_PER_S
        if len(result.records)
        else None,
        "total_latency_s": total_latency_s(totals),
        "prediction": prediction_error(result) if is_predicting(result) else None,
        **identity_of(result),
        "warnings": warnings_of(result, totals),
    }


def counts_and_latencies(totals: np.ndarray, percentiles: np.ndarray) -> dict[str, Any]:
    """Return counts by status and the distributions of TTFT, TPOT and E2E over some tiers."""
    by_status = totals["by_status"].sum(axis=0).tolist()
    counts = totals["n_defined"].sum(axis=0).tolist()
    sums = totals["sum_s"].sum(axis=0).tolist()
    numbers = {
        "offered": int(totals["offered"].sum()),
        "finished": by_status[FINISHED],
        "rejected": by_status[REJECTED],
        "failed": by_status[FAILED],
        "cancelled": by_status[CANCELLED],
        "unfinished": by_status[UNFINISHED],
    }
    distributions = {
        name: distribution(count, total, row, population)
        for name, count, total, row, population in zip(
            MEASURES, counts, sums, percentiles.tolist(), POPULATIONS, strict=True
        )
    }
    return numbers | distributions


def distribution(n: int, total: float, percentiles: list[float], population: str) -> dict[str, Any]:
    """Return mean and percentiles of n values, None for none, and whose values they are."""
    if n == 0:
        values: list[float | None] = [None] * 5
    else:
        values = [total / n, *percentiles]
    names = ("mean", "p50", "p90", "p95", "p99")
    return dict(zip(names, values, strict=True)) | {"n": n, "population": population}


def of_tier(account: Account, tier: int, span_s: float) -> dict[str, Any]:
    """Return one tier's counts, latencies and SLO attainment."""
    totals = account.totals[tier : tier + 1]
    latencies = counts_and_latencies(totals, account.percentiles[tier])
    return latencies | served_well(totals, span_s)


def served_well(totals: np.ndarray, span_s: float) -> dict[str, Any]:
    """Return how many requests met the SLO; met + missed + undecided = offered."""
    met, missed = int(totals["slo_met"].sum()), int(totals["slo_missed"].sum())
    offered = int(totals["offered"].sum())
    return {
        "slo_met": met,
        "slo_missed": missed,
        "slo_undecided": offered - met - missed,
        "slo_attainment": metrics.slo_attainment(met, offered),
        "goodput_per_s": metrics.goodput(met, span_s),
    }


def work_of(totals: np.ndarray) -> dict[str, int]:
    """Return what was done twice or moved."""
    return {
        "preemptions": int(totals["preemptions"].sum()),
        "preempted_requests": int(totals["preempted"].sum()),
        "recomputed_tokens": int(totals["recomputed_tokens"].sum()),
        "migrations": int(totals["migrations"].sum()),
    }


def cost_of(result: "Result", totals: np.ndarray, span_s: float) -> dict[str, Any]:
    """Return throughput, and the instances and GPUs that it took."""
    finished = int(totals["by_status"][:, FINISHED].sum())
    met = int(totals["slo_met"].sum())
    charged_s = charged_seconds(result, span_s)
    instance_seconds = float(charged_s.sum())
    gpus = np.array([row.tensor_parallel for row in result.config.fleet_profiles])
    profile = result.engines["profile"][result.instances["own_engine"]]
    gpu_seconds = float(gpus[profile] @ charged_s)
    busy_s = sum(result.instances["busy_ps"].tolist()) / PS_PER_S
    return {
        "span_s": span_s,
        "throughput_per_s": finished / span_s if span_s > 0 else None,
        "output_tokens_per_s": int(totals["output_tokens"].sum()) / span_s if span_s > 0 else None,
        "instance_seconds": instance_seconds,
        "gpu_seconds": gpu_seconds,
        "gpu_seconds_per_slo_met": gpu_seconds / met if met else None,
        "busy_fraction": busy_s / instance_seconds if instance_seconds > 0 else None,
    }


def charged_seconds(result: "Result", span_s: float) -> np.ndarray:
    """Return for how much of the run's span each instance is charged, float64[M] seconds.

    From the order to start to the instant at which it is absent: draining or failed ones are charged.
    """
    if not len(result.records):
        return np.zeros(len(result.instances))
    first_ps = int(result.records["arrival_ps"][0])
    end_ps = first_ps + round(span_s * PS_PER_S)
    instances = result.instances
    since_ps = np.minimum(np.maximum(instances["charged_since_ps"], first_ps), end_ps)
    until_ps = np.maximum(np.minimum(instances["charged_until_ps"], end_ps), since_ps)
    return (instances["charged_ps"] + until_ps - since_ps) / PS_PER_S


def events_of(result: "Result") -> dict[str, int]:
    """Return how often the gateway held, and what faults, clients and scaling did."""
    gateway, control = result.gateway[0], result.control[0]
    return {
        "holds": int(gateway["n_holds"]),
        "admission_holds": int(gateway["n_admission_holds"]),
        "admission_rejections": int(gateway["n_admission_rejects"]),
        "crashes": int(control["n_crashes"]),
        "crash_retries": int(control["n_crash_retries"]),
        "client_retries": int(control["n_client_retries"]),
        "scale_ups": int(control["n_scale_ups"]),
        "scale_downs": int(control["n_scale_downs"]),
        **move_counts(result),
    }


def is_predicting(result: "Result") -> bool:
    """Return whether the estimator tells requests apart; the constant one's error is left to who asks for it."""
    return result.config.estimator != "constant"


def identity_of(result: "Result") -> dict[str, Any]:
    """Return what was run: enough to see whether two summaries may be compared."""
    return {
        "load": result.offered_load,
        "rate_per_s": result.trace.mean_rate_per_s,
        "seeds": [result.seed],
        "horizon_s": result.horizon_s,
        "workload_hash": result.trace.workload_hash,
        "estimator": result.config.estimator,
        "config": result.config.model_dump(),
    }


def span_of(result: "Result", account: Account) -> float:
    """Return the seconds from the first arrival to the end of the run; 0 for an empty trace."""
    if not len(result.records):
        return 0.0
    last_ps = int(account.totals["last_end_ps"].max())
    return (last_ps - int(result.records["arrival_ps"][0])) / PS_PER_S


def total_latency_s(totals: np.ndarray) -> float:
    """Return the total latency of all tiers, seconds."""
    high, low = int(totals["latency_high"].sum()), int(totals["latency_low"].sum())
    return metrics.total_latency((high << LOW_BITS) + low, float(totals["penalty_s"].sum()))


def fairness(result: "Result") -> float | None:
    """Return Jain's index over the mean slowdowns (unloaded.py) of tenants with finished requests.

    None without tenants.
    """
    tenant = result.trace.tenant
    if tenant is None:
        return None
    sums, counts = np.zeros(len(tenant.names)), np.zeros(len(tenant.names), np.int64)
    unloaded.sum_slowdowns(
        result.records, result.instances, result.engines, tenant.codes, sums, counts
    )
    return metrics.jain_index((sums[counts > 0] / counts[counts > 0]).tolist())


def warnings_of(result: "Result", totals: np.ndarray) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    found = list(result.trace.warnings)
    for e, row in enumerate(result.config.fleet_profiles):
        if row.is_estimate:
            found.append(f"{row.name}: profile is a datasheet estimate, never measured")
        of_row = result.instances["own_engine"] == e
        for name, limit in (("prefill", row.max_prefill_tokens), ("kv", row.max_kv_tokens)):
            most = int(result.instances[f"largest_{name}_tokens"][of_row].max(initial=0))
            if limit is not None and most > limit:
                found.append(
                    f"{row.name}: left the profile's fitted range with {most} {name} tokens in an "
                    f"iteration, more than {limit}"
                )
    if result.n_bad_predictions:
        found.append(
            f"{result.n_bad_predictions} predictions outside 1 .. 2**30 tokens or NaN, replaced"
        )
    unfinished = int(totals["by_status"][:, UNFINISHED].sum())
    if unfinished:
        found.append(f"{unfinished} requests unfinished at the end: they have no TPOT and no E2E")
    return found
