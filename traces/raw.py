"""RawTrace: the columns of a file before they are checked, and the one way to make a Trace of them.

Rules: a row with 0 output tokens is a failed request, dropped and counted; everything else that is
wrong is an error naming the row, and nothing is loaded in part.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.labels import Labels
from servegym.traces.trace import Trace
from servegym.traces.validation import (
    check_arrivals,
    check_times,
    check_tokens,
    rows_of,
    to_numbers,
)


@dataclass(frozen=True)
class RawTrace:
    """Columns of n data rows as read, unchecked.

    file: its name, for messages. format: what it was read as. rows: the file's row number of each
    data row (the header is row 1). arrival_s: s. Tiers and labels only from our own files.
    """

    file: str
    format: str
    rows: NDArray[np.int64]
    arrival_s: ArrayLike
    prompt_tokens: ArrayLike
    output_tokens: ArrayLike
    tier: ArrayLike | None = None
    category: Labels | None = None
    tenant: Labels | None = None
    name: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()


def to_trace(raw: RawTrace, sort: bool) -> tuple[Trace, dict[str, int]]:
    """Return the checked trace and the rows dropped, by reason.

    ValueError names the field, value and row of the first fault. sort=True orders by arrival,
    stably, and leaves a note when that moved anything.
    """
    where = rows_of(raw.file, raw.rows)
    times = check_times(raw.arrival_s, where) if sort else check_arrivals(raw.arrival_s, where)
    outputs = check_tokens("output_tokens", raw.output_tokens, least=0, where=where)
    is_served = outputs > 0
    prompts = to_numbers("prompt_tokens", raw.prompt_tokens, where)
    prompts = check_tokens("prompt_tokens", np.where(is_served, prompts, 1), where=where)

    order = np.argsort(times, kind="stable")
    n_moved = int(np.count_nonzero(order != np.arange(len(order))))
    chosen = order[is_served[order]]
    notes = (*raw.notes, f"sorted by arrival: {n_moved:,} rows moved") if n_moved else raw.notes
    trace = Trace(
        times[chosen],
        prompts[chosen],
        outputs[chosen],
        None if raw.tier is None else np.asarray(raw.tier)[chosen],
        category=take(raw.category, chosen),
        tenant=take(raw.tenant, chosen),
        name=raw.name,
        source=raw.source,
        notes=notes,
    )
    n_failed = int(np.count_nonzero(~is_served))
    return trace, {"with 0 output tokens": n_failed} if n_failed else {}


def take(labels: Labels | None, chosen: NDArray[Any]) -> Labels | None:
    """Return the labels of some rows, None when there are no labels."""
    return None if labels is None else labels.take(chosen)
