"""Trace: the requests of a run, in order of arrival. Immutable and validated.

arrival_s is the truth about time: the engine's picoseconds are rounded from it once, and a replay
reads the saved trace. Methods return new traces and say what they did in `notes`.
Left out on purpose: everything that depends on a cluster, and the prompts' text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.labels import Labels
from servegym.traces.report import LoadReport
from servegym.traces.streams import stream
from servegym.traces.validation import check_arrivals, check_codes, check_tokens, frozen

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trace:
    """n requests; all arrays read-only, of length n and in order of arrival.

    arrival_s: float64, s, >= 0, non-decreasing. prompt_tokens, output_tokens: int32, >= 1.
    tier: int16, 0 is the most urgent. category, tenant: Labels, or None when unknown.
    name, source: what it is and where from. notes: what was done to it.
    report: what a loader read and dropped, None when it did not come from a file.
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
    ) -> None:
        """Check every column; ValueError names the field, the value and the index at fault."""
        times = check_arrivals(arrival_s)
        tier = np.zeros(len(times), np.int16) if tier is None else tier
        columns = {
            "arrival_s": frozen(times),
            "prompt_tokens": frozen(check_tokens("prompt_tokens", prompt_tokens)),
            "output_tokens": frozen(check_tokens("output_tokens", output_tokens)),
            "tier": frozen(check_codes("tier", tier)),
            "category": category,
            "tenant": tenant,
        }
        for field, column in columns.items():
            if column is not None and len(column) != len(times):
                raise ValueError(f"{field} has {len(column)} rows; arrival_s has {len(times)}")
        texts = {"name": name, "source": source, "notes": tuple(notes), "report": report}
        for field, value in (columns | texts).items():
            object.__setattr__(self, field, value)

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
        """32 hex digits of arrivals, lengths, tiers and labels; not of name, source or notes."""
        digest = blake2b(digest_size=16)
        for array in (self.arrival_s, self.prompt_tokens, self.output_tokens, self.tier):
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        for labels in (self.category, self.tenant):
            if labels is not None:
                digest.update(repr(labels.names).encode() + labels.codes.astype("<i2").tobytes())
            digest.update(b"|")
        return digest.hexdigest()

    def scale_rate(self, factor: float) -> Self:
        """Divide every inter-arrival time by factor and change nothing else.

        The first arrival stays where it is. ValueError unless factor is finite and > 0.
        """
        if not (np.isfinite(factor) and factor > 0.0):
            raise ValueError(f"factor = {factor}; must be finite and > 0")
        if factor == 1.0 or not len(self):
            return self
        first = self.arrival_s[0]
        arrival_s = first + (self.arrival_s - first) / factor
        return replace(self, arrival_s=arrival_s, notes=(*self.notes, f"rate times {factor:g}"))

    def assign_tiers(self, fractions: Sequence[float], seed: int) -> Self:
        """Draw each request's tier at random: tier p with probability fractions[p].

        ValueError unless fractions are >= 0 and sum to 1 (within 1e-9).
        """
        shares = np.asarray(fractions, dtype=np.float64)
        if shares.ndim != 1 or not (shares >= 0.0).all() or abs(shares.sum() - 1.0) > 1e-9:
            raise ValueError(f"fractions = {list(fractions)}; must be >= 0 and sum to 1")
        edges = np.cumsum(shares)
        edges /= edges[-1]
        draws = stream(seed, "tiers").random(len(self))
        tier = np.searchsorted(edges, draws, side="right")
        return replace(self, tier=tier, notes=(*self.notes, f"tiers {list(fractions)}"))

    def window(self, start_s: float | None = None, end_s: float | None = None) -> Self:
        """Keep start_s <= arrival < end_s (s); arrivals then count from start_s (None: from 0)."""
        start = 0.0 if start_s is None else start_s
        end = np.inf if end_s is None else end_s
        if not 0.0 <= start <= end:
            raise ValueError(f"window = [{start}, {end}); must be 0 <= start_s <= end_s")
        first, stop = (int(i) for i in np.searchsorted(self.arrival_s, [start, end]))
        return self.take(slice(first, stop), start, f"window [{start:g}, {end:g}) s")

    def head(self, n: int) -> Self:
        """Keep the first n requests (all of them when there are fewer)."""
        if n < 0:
            raise ValueError(f"n = {n}; must be >= 0")
        return self.take(slice(0, n), 0.0, f"first {n:,} requests")

    def block(self, k: int, n_blocks: int) -> Self:
        """Return block k of n_blocks contiguous, disjoint blocks; arrivals count from its first.

        Sizes differ by at most one request. ValueError unless 0 <= k < n_blocks <= n.
        """
        if not 0 <= k < n_blocks <= len(self):
            expected = f"must be 0 <= k < n_blocks <= {len(self)} requests"
            raise ValueError(f"k = {k}, n_blocks = {n_blocks}; {expected}")
        first, stop = k * len(self) // n_blocks, (k + 1) * len(self) // n_blocks
        origin_s = float(self.arrival_s[first])
        return self.take(slice(first, stop), origin_s, f"block {k} of {n_blocks}")

    def take(self, chosen: slice | NDArray[np.int64], origin_s: float, note: str) -> Self:
        """Return some requests, in order, with arrivals counted from origin_s (s), and a note."""
        return replace(
            self,
            arrival_s=self.arrival_s[chosen] - origin_s,
            prompt_tokens=self.prompt_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            tier=self.tier[chosen],
            category=None if self.category is None else self.category.take(chosen),
            tenant=None if self.tenant is None else self.tenant.take(chosen),
            notes=(*self.notes, note),
        )

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table, one row per request; category and tenant only when known."""
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
