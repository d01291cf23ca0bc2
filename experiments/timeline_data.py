"""What the timeline's page is told: plain lists and numbers, times in whole microseconds.

Requests stand in lanes, one an instance, and in rows of a lane: a request keeps its row from arrival
to end, and takes the first row that is free. Null stands for what never happened.
"""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.experiments.recorder import Recording, span_ps
from servegym.experiments.run_text import numbers, setting
from servegym.simulator.request_table import STATUSES
from servegym.simulator.result import Result
from servegym.simulator.state import NO_INSTANCE
from servegym.traces import palette

PS_PER_US = 10**6
MOST_TIERS = 5  # colours; less urgent tiers share the last
TIER_COLOURS = palette.SERIES[:MOST_TIERS]


def page_data(result: Result, recording: Recording, max_requests: int) -> dict[str, Any]:
    """Return all that the page shows of a result."""
    chosen = chosen_requests(result, recording.instances, max_requests)
    start_ps, end_ps = span_ps(result)
    lanes = lane_of(result.records["instance"][chosen], recording.instances)
    ends = np.where(is_ended(result)[chosen], result.records["finish_ps"][chosen], end_ps)
    rows = rows_of(lanes, result.records["arrival_ps"][chosen], ends)
    return {
        "system": result.system,
        "setting": f"{setting(result)}, seed {result.seed}",
        "numbers": numbers(result.summary()),
        "notes": notes_of(result, recording, chosen),
        "start": start_ps // PS_PER_US,
        "end": -(-end_ps // PS_PER_US),
        "colours": list(TIER_COLOURS),
        "mark": palette.VERMILION,
        "tiers": np.unique(result.requests["tier"]).tolist(),
        "statuses": list(STATUSES),
        "lanes": lanes_of(result, recording, lanes, rows),
        "requests": columns_of(result, chosen, lanes, rows, ends),
        "evictions": evictions_of(recording, chosen),
        "times": (recording.time_s * 1e6).round().astype(np.int64).tolist(),
    }


def chosen_requests(
    result: Result, instances: NDArray[np.int64], max_requests: int
) -> NDArray[np.int64]:
    """Return the requests of these instances; if too many, max_requests of them, evenly spread."""
    there = np.flatnonzero(np.isin(result.records["instance"], instances))
    if len(there) <= max_requests:
        return there
    return there[np.linspace(0, len(there) - 1, max_requests).astype(np.int64)]


def is_ended(result: Result) -> NDArray[np.bool_]:
    """Return for every request whether it ended, in whatever way."""
    return result.records["finish_ps"] >= 0


def lane_of(placed: NDArray[Any], instances: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lane of each request from its instance, which must be among those shown."""
    order = np.argsort(instances)
    return order[np.searchsorted(instances, placed, sorter=order)]


def rows_of(
    lanes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a row for each request so that no two in a row of a lane overlap; starts must rise.

    The first free row is taken, so a lane has as many rows as requests were ever on it at once.
    """
    rows = np.zeros(len(lanes), np.int64)
    for lane in np.unique(lanes).tolist():
        busy: list[tuple[int, int]] = []  # (end, row)
        free: list[int] = []
        n_rows = 0
        for r in np.flatnonzero(lanes == lane).tolist():
            while busy and busy[0][0] <= starts[r]:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                heapq.heappush(free, n_rows)
                n_rows += 1
            rows[r] = heapq.heappop(free)
            heapq.heappush(busy, (int(ends[r]), int(rows[r])))
    return rows


def lanes_of(
    result: Result, recording: Recording, lanes: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Return a lane for every recorded instance: what it is, and its samples."""
    found = []
    placed = np.bincount(
        result.records["instance"][result.records["instance"] >= 0], minlength=len(result.instances)
    )
    profiles = [row.name for row in result.config.fleet_profiles]
    for m, i in enumerate(recording.instances.tolist()):
        found.append(
            {
                "instance": i,
                "profile": profiles[int(result.instances["engine"][i])],
                "requests": int(placed[i]),
                "rows": int(rows[lanes == m].max(initial=-1)) + 1,
                "kv_blocks": int(recording.kv_blocks[m]),
                "used": recording.used_blocks[:, m].tolist(),
                "waiting": recording.waiting[:, m].tolist(),
                "running": recording.running[:, m].tolist(),
                "preemptions": recording.preemptions[:, m].tolist(),
            }
        )
    return found


def columns_of(
    result: Result,
    chosen: NDArray[np.int64],
    lanes: NDArray[np.int64],
    rows: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> dict[str, list[Any]]:
    """Return the chosen requests, a list for every property."""
    records, table = result.records[chosen], result.requests.iloc[chosen]
    columns = {"id": chosen.tolist(), "lane": lanes.tolist(), "row": rows.tolist()}
    for name in ("arrival", "admitted", "first_token"):
        columns[name] = microseconds(records[f"{name}_ps"])
    columns["end"] = microseconds(ends)
    columns["status"] = table["status"].cat.codes.tolist()
    counts = ("prompt_tokens", "output_tokens", "predicted_tokens", "preemptions")
    for name in ("tier", *counts, "recomputed_tokens"):
        columns[name] = records[name].tolist()
    for name in ("category", "tenant"):
        if table[name].notna().any():
            columns[name] = table[name].astype(object).where(table[name].notna(), None).tolist()
    return columns


def microseconds(ps: NDArray[Any]) -> list[int | None]:
    """Return instants in whole microseconds, None for one that never came (negative)."""
    return [None if t < 0 else (t + PS_PER_US // 2) // PS_PER_US for t in ps.tolist()]


def evictions_of(recording: Recording, chosen: NDArray[np.int64]) -> dict[str, list[int]]:
    """Return the preemptions of the chosen requests, by their place among those: sample numbers."""
    kept = recording.evictions[np.isin(recording.evictions["request"], chosen)]
    return {
        "request": np.searchsorted(chosen, kept["request"]).tolist(),
        "sample": kept["sample"].tolist(),
        "until": kept["until"].tolist(),
        "times": kept["times"].tolist(),
    }


def notes_of(result: Result, recording: Recording, chosen: NDArray[np.int64]) -> list[str]:
    """Say what is not in the picture, each with its number."""
    placed = result.records["instance"]
    n_lanes, n_instances = len(recording.instances), len(result.instances)
    n_there = int(np.isin(placed, recording.instances).sum())
    n_nowhere = int((placed == NO_INSTANCE).sum())
    n_open = int((~is_ended(result) & np.isin(placed, recording.instances)).sum())
    notes = []
    if n_lanes < n_instances:
        notes.append(f"{n_lanes} of {n_instances:,} instances are shown.")
    if len(chosen) < n_there:
        notes.append(
            f"Only {len(chosen):,} of {n_there:,} requests are shown as bars, evenly thinned; "
            "KV use, queues and the numbers above are of all."
        )
    if n_nowhere:
        notes.append(f"{n_nowhere:,} requests were never placed on an instance and have no bar.")
    if n_open:
        notes.append(
            f"{n_open:,} requests were unfinished when the run was cut; their bars end there."
        )
    return notes
