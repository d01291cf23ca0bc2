"""Trace: the requests of a run, in order of arrival. Immutable and validated.

arrival_s is the truth about time: the engine's picoseconds are rounded from it once, and a replay
reads the saved trace. Methods return new traces and say what they did in `notes`; most are defined
in files of their own (selection, retiming, assignment, concat, describe).
Left out on purpose: everything that depends on a cluster, and the prompts' text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces import assignment, plausibility, retiming, selection
from servegym.traces.concat import concat as join
from servegym.traces.describe import describe as measure
from servegym.traces.labels import Labels
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.report import LoadReport
from servegym.traces.validation import check_arrivals, check_tiers, check_tokens, frozen

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trace:
    """n requests; all arrays read-only, of length n and in order of arrival.

    arrival_s: float64, s, >= 0, non-decreasing. prompt_tokens, output_tokens: int32, >= 1.
    tier: int16, 0 is the most urgent. category, tenant, model, session: Labels, None if unknown.
    prefix_blocks: ids of the prompts' blocks, None if unknown. resolution_s: times are known only
    to a multiple of it (s), None if finely. name, source: what it is and where from.
    notes: what was done to it. report: what a loader read and dropped, None without a file.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    tier: NDArray[np.int16]
    category: Labels | None
    tenant: Labels | None
    name: str
    source: str
    notes: tuple[str, ...]
    report: LoadReport | None
    model: Labels | None
    session: Labels | None
    prefix_blocks: PrefixBlocks | None
    resolution_s: float | None

    def __init__(
        self,
        arrival_s: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        tier: ArrayLike | None = None,
        category: Labels | None = None,
        tenant: Labels | None = None,
        name: str = "",
        source: str = "",
        notes: Sequence[str] = (),
        report: LoadReport | None = None,
        model: Labels | None = None,
        session: Labels | None = None,
        prefix_blocks: PrefixBlocks | None = None,
        resolution_s: float | None = None,
    ) -> None:
        """Check every column; ValueError names the field, the value and the index at fault."""
        times = check_arrivals(arrival_s)
        self._set(
            {
                "arrival_s": frozen(times),
                "prompt_tokens": frozen(check_tokens("prompt_tokens", prompt_tokens)),
                "output_tokens": frozen(check_tokens("output_tokens", output_tokens)),
                "tier": frozen(no_tiers(len(times)) if tier is None else check_tiers(tier)),
                "category": category,
                "tenant": tenant,
                "model": model,
                "session": session,
                "prefix_blocks": prefix_blocks,
                "name": name,
                "source": source,
                "notes": tuple(notes),
                "report": report,
                "resolution_s": resolution_s,
            }
        )

    def replaced(self, **fields: Any) -> "Trace":
        """Return a trace with other fields; only those are checked, the rest is shared, not copied.

        ValueError as in __init__, TypeError for what is no field.
        """
        values = {name: self.__dict__[name] for name in TRACE_FIELDS}
        for name, value in fields.items():
            if name not in values:
                raise TypeError(f"{name}; no field of a trace")
            values[name] = frozen(CHECKS[name](value)) if name in CHECKS else value
        twin = object.__new__(type(self))
        twin._set(values)
        return twin

    def _set(self, values: dict[str, Any]) -> None:
        """Set all fields; ValueError for a column that has not a row a request."""
        n = len(values["arrival_s"])
        for field in COLUMNS:
            column = values[field]
            if column is not None and len(column) != n:
                raise ValueError(f"{field} has {len(column)} rows; arrival_s has {n}")
        self.__dict__.update(values)

    def __setstate__(self, state: dict) -> None:
        """Unpickled arrays come back writable: make them read-only again."""
        self.__dict__.update(state)
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def __repr__(self) -> str:
        """The name and the rates on one line."""
        return f"<Trace {self.name or 'unnamed'}: {self.rates()}>"

    @property
    def span_s(self) -> float:
        """Time from the first to the last arrival, s; 0 for fewer than two requests."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def mean_rate_per_s(self) -> float | None:
        """Requests per second, (n - 1) / span; None when the span is zero."""
        return (len(self) - 1) / self.span_s if self.span_s > 0.0 else None

    def rates(self) -> str:
        """One line: requests, span in s, mean req/s, mean prompt and output tokens."""
        if not len(self):
            return "0 requests"
        rate = self.mean_rate_per_s
        rate_text = "rate undefined" if rate is None else f"{rate:,.4g} req/s"
        prompt, output = self.prompt_tokens.mean(), self.output_tokens.mean()
        tokens = f"mean prompt {prompt:,.1f}, mean output {output:,.1f} tokens"
        return f"{len(self):,} requests over {self.span_s:,.1f} s, {rate_text}, {tokens}"

    @cached_property
    def workload_hash(self) -> str:
        """32 hex digits of arrivals, lengths, tiers, labels and prefix blocks, not of texts."""
        digest = blake2b(digest_size=16)
        for array in (self.arrival_s, self.prompt_tokens, self.output_tokens, self.tier):
            digest.update(little_endian(array))
        for labels in (self.category, self.tenant):
            if labels is not None:
                digest.update(repr(labels.names).encode() + little_endian(labels.codes))
            digest.update(b"|")
        for field, labels in (("model", self.model), ("session", self.session)):
            if labels is not None:
                names = repr((field, labels.names)).encode()
                digest.update(names + little_endian(labels.codes))
        if (blocks := self.prefix_blocks) is not None:
            digest.update(b"blocks" + little_endian(blocks.ids) + little_endian(blocks.offsets))
        return digest.hexdigest()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of results on this trace must know, one sentence each."""
        return plausibility.caveats(self)

    take = selection.take
    window = selection.window
    head = selection.head
    block = selection.block
    sample = selection.sample
    scale_rate = retiming.scale_rate
    shift = retiming.shift
    spread_batches = retiming.spread_batches
    assign_tiers = assignment.assign_tiers
    assign_categories = assignment.assign_categories
    concat = join
    describe = measure

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table, one row per request; labels only when known, no prefix blocks."""
        from servegym.traces.frame import to_frame

        return to_frame(self)

    @classmethod
    def from_frame(
        cls, frame: "pd.DataFrame", sort: bool = False, name: str = "", source: str = ""
    ) -> "Trace":
        """Build from a table with arrival_s, prompt_tokens, output_tokens; others are optional.

        ValueError lists missing columns, or names the row at fault. sort=True orders by arrival.
        """
        from servegym.traces.frame import from_frame

        return from_frame(frame, sort, name, source)

    def save(self, path: str | Path) -> None:
        """Write one parquet file that `load` reads back bit for bit (the report is not kept)."""
        from servegym.traces.parquet import write_trace

        write_trace(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a file that `save` wrote; `servegym.traces.load` reads the public formats too."""
        from servegym.traces.load import load

        return load(path)


TRACE_FIELDS = tuple(field.name for field in fields(Trace))
CHECKS = {
    "arrival_s": check_arrivals,
    "prompt_tokens": partial(check_tokens, "prompt_tokens"),
    "output_tokens": partial(check_tokens, "output_tokens"),
    "tier": check_tiers,
}
COLUMNS = (*CHECKS, "category", "tenant", "model", "session", "prefix_blocks")


def no_tiers(n: int) -> NDArray[np.int16]:
    """Return the tiers of n requests that have none: all are of tier 0."""
    return np.zeros(n, np.int16)


def little_endian(array: NDArray[Any]) -> bytes:
    """Return an array's bytes, the same on every machine."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
