"""Result.requests: one row a request, in order of arrival.

Times in seconds, NaN while undefined. finish_s is the moment the request ended, however it ended
(status says how); e2e_s and tpot_s are of finished requests only. instance: -1 if never placed.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from servegym.simulator.request_times import TIMES, fill_times
from servegym.simulator.state import REJECTED
from servegym.traces import Labels

if TYPE_CHECKING:
    from servegym.simulator.result import Result

STATUSES = ("unfinished", "finished", "rejected", "failed", "cancelled")  # by state.UNFINISHED ..


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
        "status": categories(requests["status"].astype(np.int8), STATUSES),
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
    """Say what a request that fits no instance needs and what the largest can hold; else it was not admitted."""
    longest = int(request["prompt_tokens"]) + int(request["output_tokens"]) - 1
    need = -(-longest // result.config.block_size)
    capacity = int(result.engines["largest_need"].max())
    if need > capacity:
        return f"needs {need} KV blocks, an instance can hold {capacity}"
    tokens = int(result.engines["largest_tokens"].max())
    if longest > tokens:
        return f"needs {longest} tokens in one prefill, an instance takes {tokens}"
    return "admission"
