"""Result.requests: one row a request, in order of arrival.

Times in seconds, NaN while undefined. finish_s is the moment the request ended, however it ended
(status says how); e2e_s and tpot_s are of finished requests only. instance: -1 if never placed.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from servegym.simulator.kernel import kernel
from servegym.simulator.metrics import NAN, e2e, queue_time, tpot, ttft
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.state import REJECTED
from servegym.traces import Labels

if TYPE_CHECKING:
    from servegym.simulator.result import Result

STATUSES = ("unfinished", "finished", "rejected", "failed", "cancelled")
STATUS_CODES = np.array([0, 0, 1, 2, 3, 4], np.int8)  # by state.WAITING .. state.CANCELLED
TIMES = ("admitted_s", "first_token_s", "finish_s", "ttft_s", "tpot_s", "e2e_s", "queue_s")


@kernel
def seconds_at(ps):
    """Return an instant in seconds, NaN for one that has not come (negative)."""
    return ps / PS_PER_S if ps >= 0 else NAN


@kernel
def fill_times(requests, times):
    """Fill times, float64[len(TIMES), n], one row a column (mutates it)."""
    for r in range(requests.shape[0]):
        request = requests[r]
        times[0, r] = seconds_at(request.admitted_ps)
        times[1, r] = seconds_at(request.first_token_ps)
        times[2, r] = seconds_at(request.finish_ps)
        times[3, r] = ttft(request)
        times[4, r] = tpot(request)
        times[5, r] = e2e(request)
        times[6, r] = queue_time(request)


def request_table(result: "Result") -> pd.DataFrame:
    """Return the table; its columns stand in the order of the design page."""
    requests, n = result.records, len(result.records)
    times = np.empty((len(TIMES), n))
    fill_times(requests, times)
    columns = {
        "request_id": np.arange(n, dtype=np.int32),
        "tier": integers(requests, "tier"),
        "category": label_column(result.trace.category, n),
        "tenant": label_column(result.trace.tenant, n),
        "arrival_s": result.trace.arrival_s[:n].copy(),
        **{name: integers(requests, name) for name in ("prompt_tokens", "output_tokens")},
        "predicted_tokens": integers(requests, "predicted_tokens"),
        "status": categories(STATUS_CODES[requests["status"]], STATUSES),
        "reason": reason_column(result),
        "instance": integers(requests, "instance"),
        **dict(zip(TIMES, times, strict=True)),
        **{name: integers(requests, name) for name in ("preemptions", "migrations")},
        "recomputed_tokens": integers(requests, "recomputed_tokens"),
    }
    return pd.DataFrame(columns, copy=False)


def integers(requests: np.ndarray, field: str) -> np.ndarray:
    """Return a field of the records as contiguous int32."""
    return np.ascontiguousarray(requests[field], dtype=np.int32)


def categories(codes: np.ndarray, names: Iterable[str]) -> pd.Categorical:
    """Return names[codes] as a category, missing for -1; texts even when there are no names."""
    return pd.Categorical.from_codes(codes, pd.Index(list(names), dtype="str"))


def label_column(labels: Labels | None, n: int) -> pd.Categorical:
    """Return the first n labels as categories; all missing when the trace has none."""
    if labels is None:
        return categories(np.full(n, -1, np.int8), ())
    return categories(labels.codes[:n], labels.names)


def reason_column(result: "Result") -> pd.Categorical:
    """Return why each request was not served: a rejected one's need and capacity; else missing."""
    requests = result.records
    codes = np.full(len(requests), -1, np.int32)
    rejected = np.flatnonzero(requests["status"] == REJECTED)
    reasons: dict[str, int] = {}
    for r in rejected.tolist():
        codes[r] = reasons.setdefault(rejection(result, requests[r]), len(reasons))
    return categories(codes, reasons)


def rejection(result: "Result", request: np.void) -> str:
    """Say what a request that fits no instance needs and what the largest instance can hold."""
    longest = int(request["prompt_tokens"]) + int(request["output_tokens"]) - 1
    need = -(-longest // result.config.block_size)
    capacity = int(result.engines["largest_need"].max())
    if need > capacity:
        return f"needs {need} KV blocks, an instance can hold {capacity}"
    tokens = int(result.engines["largest_tokens"].max())
    return f"needs {longest} tokens in one prefill, an instance takes {tokens}"
