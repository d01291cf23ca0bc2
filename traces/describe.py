"""describe: the figures of a trace as a dict of plain values; None where one is undefined.

Arrivals: CV of inter-arrival times (standard deviation / mean), and for windows of 1, 10 and 60 s the
index of dispersion (variance / mean of the counts; Poisson: 1), the peak and the share of empty
ones, over whole windows from the first arrival. Lengths: mean, standard deviation, quantiles of
single requests, and how prompt and output go together. Shares of tiers and labels.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.labels import NOT_RECORDED, Labels

if TYPE_CHECKING:
    from servegym.traces.trace import Trace

WINDOWS_S = (1, 10, 60)
PERCENTILES = (1, 5, 25, 50, 75, 90, 99)
MOST_LABELS = 10

Figures = dict[str, Any]


def describe(trace: "Trace") -> Figures:
    """Return counts, arrivals, lengths, correlation and shares; JSON can hold it."""
    return {
        "name": trace.name,
        "source": trace.source,
        "requests": len(trace),
        "span_s": trace.span_s,
        "mean_rate_per_s": trace.mean_rate_per_s,
        "interarrival_cv": interarrival_cv(trace.arrival_s),
        "resolution_s": trace.resolution_s,
        "windows": [window_figures(trace.arrival_s, width) for width in WINDOWS_S],
        "prompt_tokens": length_figures(trace.prompt_tokens),
        "output_tokens": length_figures(trace.output_tokens),
        "correlation": correlation(trace.prompt_tokens, trace.output_tokens),
        "tiers": tier_shares(trace.tier),
        "labels": {
            name: label_figures(labels)
            for name in ("category", "tenant", "model", "session")
            if (labels := getattr(trace, name)) is not None
        },
        "prefix_reuse_share": None if (p := trace.prefix_blocks) is None else p.reuse_share(),
        "notes": list(trace.notes),
        "warnings": list(trace.warnings),
    }


def interarrival_cv(arrival_s: NDArray[np.float64]) -> float | None:
    """Return standard deviation / mean of the gaps; None without two gaps or without time."""
    gaps = np.diff(arrival_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.sum() > 0.0 else None


def window_figures(arrival_s: NDArray[np.float64], width_s: int) -> Figures:
    """Return figures of the counts in whole windows; None where there are fewer than two."""
    n = 0 if not len(arrival_s) else int((arrival_s[-1] - arrival_s[0]) // width_s)
    figures: Figures = {"window_s": width_s, "windows": n}
    if n < 2:
        return figures | {"index_of_dispersion": None, "peak_per_s": None, "empty_share": None}
    places = ((arrival_s - arrival_s[0]) // width_s).astype(np.int64)
    counts = np.unique(places[places < n], return_counts=True)[1]  # of windows that have any
    mean = float(counts.sum()) / n
    squares = float((counts.astype(np.float64) ** 2).sum())
    return figures | {
        "index_of_dispersion": (squares - n * mean**2) / (n - 1) / mean,
        "peak_per_s": float(counts.max() / width_s),
        "empty_share": 1.0 - len(counts) / n,
    }


def length_figures(tokens: NDArray[np.int32]) -> Figures:
    """Return mean, standard deviation, quantiles and maximum of lengths in tokens."""
    names = [f"p{percentile}" for percentile in PERCENTILES]
    if not len(tokens):
        return dict.fromkeys(["mean", "sd", *names, "max"])
    return {
        "mean": float(tokens.mean()),
        "sd": float(tokens.std()),
        **dict(zip(names, np.percentile(tokens, PERCENTILES).tolist(), strict=True)),
        "max": int(tokens.max()),
    }


def correlation(prompts: NDArray[np.int32], outputs: NDArray[np.int32]) -> Figures:
    """Return Pearson's and Spearman's coefficients, and Pearson's of log(1 + tokens)."""
    return {
        "pearson": pearson(prompts, outputs),
        "spearman": pearson(ranks(prompts), ranks(outputs)),
        "pearson_log": pearson(np.log1p(prompts), np.log1p(outputs)),
    }


def pearson(x: NDArray[Any], y: NDArray[Any]) -> float | None:
    """Return the correlation coefficient; None when either does not vary."""
    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return None
    return float(np.corrcoef(x, y)[0, 1])


def ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return ranks from 0, equal values sharing their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2.0)[place]


def tier_shares(tier: NDArray[np.int16]) -> dict[str, float]:
    """Return the share of requests of each tier that has any."""
    tiers, counts = np.unique(tier, return_counts=True)
    return {str(t): c / len(tier) for t, c in zip(tiers.tolist(), counts.tolist(), strict=True)}


def label_figures(labels: Labels) -> Figures:
    """Return how many labels occur, and the shares of the most frequent, "" where not recorded."""
    counts = np.bincount(labels.codes, minlength=len(labels.names))
    order = np.argsort(-counts, kind="stable")[:MOST_LABELS]
    shares = {labels.names[k]: int(counts[k]) / len(labels) for k in order.tolist() if counts[k]}
    n_named = sum(1 for k in np.flatnonzero(counts) if labels.names[k] != NOT_RECORDED)
    return {"distinct": n_named, "largest": shares}
