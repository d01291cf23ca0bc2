"""Objectives: the number that a training run improves, each a function of a Result.

Every number can be had from `Result.summary()`; here it is worked out without the rest of a summary. All count offered
requests as the summary does: latencies are those of finished requests, what is rejected meets no SLO.
Left out: weighted sums of objectives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from servegym.simulator.accounting import E2E, LEVELS, Account, take_account
from servegym.simulator.result import Result
from servegym.simulator.slo import DEFAULT_SLO, Slo, tier_weight
from servegym.simulator.summary import span_of
from servegym.traces.names import near_match

P99 = LEVELS.index(0.99)
ANY_TPOT_S = 1e6  # no request is as slow: an SLO of time to first token alone


@dataclass(frozen=True)
class Objective:
    """What a schedule is to be good at.

    value: of an account and the run's span in seconds. slo: what counts as served well. reward: the term of the
    environments' rewards that goes with it, under the same SLO (envs/serving_env.py).
    """

    name: str
    meaning: str
    unit: str
    better: Literal["lower", "higher"]
    value: Callable[[Account, float], float]
    reward: str
    slo: Slo = DEFAULT_SLO

    def of(self, result: Result) -> float:
        """Return the number of a run; NaN while it is undefined."""
        config = result.config
        limits = self.slo.by_tier(config.tiers, config.reject_penalty_s)
        tiers = result.trace.tier[: len(result.records)]
        account = take_account(result.records, tiers, limits, result.cut_ps)
        return self.value(account, span_of(result, account))

    def cost(self, result: Result) -> float:
        """Return what is to be minimised: the number, or minus it; NaN while it is undefined."""
        return self.of(result) if self.better == "lower" else -self.of(result)

    @property
    def env_options(self) -> dict[str, Any]:
        """The arguments of an environment that pay for it: `reward` and `slo`."""
        return {
            "reward": self.reward,
            "slo": {"ttft_s": self.slo.ttft_s, "tpot_s": self.slo.tpot_s},
        }


def mean_e2e(account: Account, span_s: float) -> float:
    """Return the mean end-to-end latency of finished requests, s."""
    finished = int(account.totals["n_defined"][:, E2E].sum())
    return float(account.totals["sum_s"][:, E2E].sum()) / finished if finished else np.nan


def p99_e2e(account: Account, span_s: float) -> float:
    """Return the 99th percentile of end-to-end latency of finished requests, s."""
    return float(account.percentiles[-1, E2E, P99])


def slo_share(account: Account, span_s: float) -> float:
    """Return the share of offered requests that met the SLO."""
    offered = int(account.totals["offered"].sum())
    return int(account.totals["slo_met"].sum()) / offered if offered else np.nan


def weighted_goodput(account: Account, span_s: float) -> float:
    """Return the requests that met the SLO, each times 2^-tier, per second of the run."""
    met = account.totals["slo_met"]
    weights = [tier_weight(tier) for tier in range(len(met))]
    return float(np.dot(weights, met)) / span_s if span_s > 0 else np.nan


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("mean-e2e", "mean end-to-end latency", "s", "lower", mean_e2e, "latency"),
        Objective("p99-e2e", "99th percentile of E2E", "s", "lower", p99_e2e, "latency"),
        Objective(
            "ttft-slo",
            "share of requests whose first token comes within its tier's limit, (1 + tier) s",
            "share",
            "higher",
            slo_share,
            "slo",
            Slo(ttft_s=1.0, tpot_s=ANY_TPOT_S),
        ),
        Objective(
            "goodput",
            "requests within the SLO (TTFT and TPOT), times 2^-tier, per second",
            "requests/s",
            "higher",
            weighted_goodput,
            "slo",
        ),
    )
}


def find_objective(name: str) -> Objective:
    """Return the objective; ValueError with the near match if there is none of that name."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective {name!r}; {near_match(name, OBJECTIVES)}")
    return OBJECTIVES[name]
