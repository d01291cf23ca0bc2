"""TraceBuilder: a Trace from the chunks of a file, checked as they come, keeping what is asked for.

Rules: a row with 0 output tokens is a failed request, dropped and counted; everything else that is
wrong is an error naming the row, and nothing is loaded in part. Unless it has to sort, the builder
asks for no chunk after the first row at or past end_s. Memory: some 60 bytes a request kept.
"""

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.labels import LabelEncoder
from servegym.traces.plausibility import implausible
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.report import LoadReport
from servegym.traces.selection import window_note, window_of
from servegym.traces.source import Chunk, Source
from servegym.traces.trace import Trace
from servegym.traces.validation import (
    check_engine_range,
    check_order,
    check_tiers,
    check_tokens,
    require,
    to_numbers,
)

Mask = NDArray[np.bool_]
FAILED, OUTSIDE = "with 0 output tokens", "outside the window"


class Columns(NamedTuple):
    """The checked columns of the rows that stay; ticks: arrivals by the source's clock."""

    ticks: NDArray[Any]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    tier: NDArray[np.int16]

    def take(self, rows: Mask | NDArray[np.int64]) -> "Columns":
        """Return some rows."""
        return Columns._make(column[rows] for column in self)


NOTHING = Columns(np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int16))


class TraceBuilder:
    """Takes in the chunks of one source, in order, then makes the trace and its report."""

    def __init__(
        self, source: Source, sort: bool, start_s: float | None, end_s: float | None
    ) -> None:
        """Keep start_s <= arrival < end_s, in s of the file's own clock; ValueError if no window."""
        self.source, self.sort = source, sort
        self.is_window = start_s is not None or end_s is not None
        self.start_s, self.end_s = window_of(start_s, end_s)
        self.n_read = 0
        self.dropped: Counter[str] = Counter()
        self.kept: list[Columns] = []
        self.encoders = {name: LabelEncoder(names) for name, names in source.labels.items()}
        self.blocks: list[PrefixBlocks] = []
        self.earliest: Any = None
        self.last_s = -np.inf

    def add(self, chunk: Chunk) -> bool:
        """Check a chunk's rows and keep those asked for; return whether later chunks matter.

        ValueError names the field, value and row of the first fault.
        """
        times = self.check_times(chunk)
        is_past = (times >= self.end_s) & (not self.sort)
        n_read = int(np.argmax(is_past)) + 1 if is_past.any() else len(times)
        columns, is_served = self.check_requests(chunk, n_read)
        is_kept = is_served
        if not self.sort:
            is_kept = is_served & (times >= self.start_s) & ~is_past
            check_engine_range(np.where(is_kept, times - self.start_s, 0.0), chunk.where)
        self.count(OUTSIDE, is_served & ~is_kept)
        self.n_read += n_read
        self.keep(columns, chunk, is_kept)
        return not is_past.any()

    def check_times(self, chunk: Chunk) -> NDArray[np.float64]:
        """Return a chunk's arrivals in s: finite, >= 0, and not before those above, unless sorted."""
        clock, ticks, where = self.source.clock, chunk.ticks, chunk.where
        require(np.isfinite(ticks), "arrival_s", ticks, "must be a finite number", where)
        alone = clock.seconds(ticks, clock.origin(ticks))
        require(alone >= 0.0, "arrival_s", alone, "must be >= 0", where)
        if self.sort:
            lowest = ticks.min()
            self.earliest = lowest if self.earliest is None else min(self.earliest, lowest)
            return alone
        if self.earliest is None:
            self.earliest = ticks[0]
        times = clock.seconds(ticks, clock.origin(self.earliest))
        check_order(times, where, self.last_s)
        self.last_s = float(times[-1])
        return times

    def check_requests(self, chunk: Chunk, n_read: int) -> tuple[Columns, Mask]:
        """Return a chunk's columns and which of its first n_read rows are served requests."""
        is_request = np.arange(len(chunk.ticks)) < n_read
        for reason, is_dropped in chunk.drops.items():
            self.count(reason, is_request & is_dropped)
            is_request = is_request & ~is_dropped
        where = chunk.where
        outputs = only(is_request, chunk.output_tokens)
        outputs = check_tokens("output_tokens", outputs, least=0, where=where)
        is_served = is_request & (outputs > 0)
        self.count(FAILED, is_request & ~is_served)
        prompts = to_numbers("prompt_tokens", only(is_request, chunk.prompt_tokens), where)
        prompts = check_tokens("prompt_tokens", np.where(is_served, prompts, 1), where=where)
        tiers = np.zeros(len(outputs)) if chunk.tier is None else chunk.tier
        return Columns(chunk.ticks, prompts, outputs, check_tiers(tiers, where)), is_served

    def count(self, reason: str, is_dropped: Mask) -> None:
        """Count rows dropped for a reason."""
        if n := int(np.count_nonzero(is_dropped)):
            self.dropped[reason] += n

    def keep(self, columns: Columns, chunk: Chunk, is_kept: Mask) -> None:
        """Store the rows that stay."""
        self.kept.append(columns.take(is_kept))
        for name, encoder in self.encoders.items():
            encoder.add(chunk.labels[name], is_kept)
        if chunk.blocks is not None:
            self.blocks.append(chunk.blocks.take(is_kept))

    def trace(self) -> Trace:
        """Return the trace of all chunks taken in, with its report."""
        kept = self.kept or [NOTHING]
        columns = Columns._make(np.concatenate(parts) for parts in zip(*kept, strict=True))
        times = self.source.clock.seconds(columns.ticks, self.origin)
        chosen, notes = self.choose(times)
        measured_s = self.source.resolution(times[chosen])
        columns = columns.take(chosen)
        labels = {name: e.labels().take(chosen) for name, e in self.encoders.items()}
        trace = Trace(
            times[chosen] - self.start_s,
            columns.prompt_tokens,
            columns.output_tokens,
            columns.tier,
            category=labels.get("category"),
            tenant=labels.get("tenant"),
            model=labels.get("model"),
            session=labels.get("session"),
            prefix_blocks=self.prefix_blocks(chosen),
            resolution_s=self.source.resolution_s or measured_s,
            name=self.source.name,
            source=self.source.source,
            notes=(*self.source.notes, *self.clock_notes(measured_s), *notes),
        )
        return replace(trace, report=self.report(trace))

    @property
    def origin(self) -> Any:
        """Ticks of time 0; 0 before any row."""
        return 0 if self.earliest is None else self.source.clock.origin(self.earliest)

    def choose(self, times: NDArray[np.float64]) -> tuple[NDArray[np.int64], list[str]]:
        """Return the rows of the trace, in order, and what was done to get them."""
        is_inside = (times >= self.start_s) & (times < self.end_s)
        self.count(OUTSIDE, ~is_inside)
        inside = np.flatnonzero(is_inside)
        chosen = inside[np.argsort(times[inside], kind="stable")] if self.sort else inside
        n_moved = int(np.count_nonzero(chosen != inside))
        notes = [f"sorted by arrival: {n_moved:,} rows moved"] if n_moved else []
        return chosen, [*notes, window_note(self.start_s, self.end_s)] if self.is_window else notes

    def clock_notes(self, measured_s: float | None) -> list[str]:
        """Say where the file's clock was set to 0, and how coarse it is."""
        said = self.source.clock.origin_note
        notes = [said.format(self.origin)] if said and self.origin else []
        return notes if measured_s is None else [*notes, f"times recorded every {measured_s:g} s"]

    def prefix_blocks(self, chosen: NDArray[np.int64]) -> PrefixBlocks | None:
        """Return the prefix blocks of the chosen rows, None when the source has none."""
        size = self.source.block_tokens
        return None if size is None else PrefixBlocks.concat(self.blocks, size).take(chosen)

    def report(self, trace: Trace) -> LoadReport:
        """Return the account of the load."""
        return LoadReport(
            self.source.file,
            self.source.format,
            self.n_read,
            len(trace),
            dict(self.dropped),
            trace.rates(),
            (*implausible(trace), *trace.warnings),
        )


def only(is_meant: Mask, values: ArrayLike) -> ArrayLike:
    """Return values with those that are not meant replaced by 1, which passes every check."""
    if is_meant.all():
        return values
    listed = values if isinstance(values, (list, np.ndarray)) else np.asarray(values)
    return [value if meant else 1 for value, meant in zip(listed, is_meant.tolist(), strict=True)]
