"""What a trace format is: its column names, its clock, and what else of a row is kept or dropped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.table import Columns
from servegym.traces.validation import Where, to_numbers

MOST_TICKS = 2.0**62
Ticks = NDArray[Any]
BlockColumn = tuple[str, int, Callable[[Sequence[Any], Where], PrefixBlocks]]


def numbers(values: Sequence[Any], where: Where) -> Ticks:
    """Read arrivals that are numbers; ValueError names one that is none."""
    return to_numbers("arrival_s", values, where).astype(np.float64)


def zero(earliest: Any) -> Any:
    """Count from the file's own zero."""
    return earliest * 0


@dataclass(frozen=True)
class Clock:
    """How arrival values become seconds: (ticks - origin) / ticks_per_s.

    to_ticks: from values as read to numbers, ValueError naming a row. origin: from the earliest
    arrival's ticks to those of time 0 (elementwise). origin_note: said of an origin that is not 0.
    """

    to_ticks: Callable[[Sequence[Any], Where], Ticks] = numbers
    ticks_per_s: float = 1.0
    origin: Callable[[Any], Any] = zero
    origin_note: str = ""

    def seconds(self, ticks: Ticks, origin: Any) -> NDArray[np.float64]:
        """Return s since the origin; of a span too long for int64 ticks, to float precision."""
        elapsed = ticks - origin
        if ticks.dtype.kind == "i":
            rough = ticks.astype(np.float64) - np.asarray(origin, np.float64)
            if (is_long := np.abs(rough) >= MOST_TICKS).any():
                elapsed = np.where(is_long, rough, elapsed)
        return elapsed / self.ticks_per_s


SECONDS = Clock()


def drop_none(columns: Columns, where: Where) -> dict[str, NDArray[np.bool_]]:
    """Drop no rows."""
    return {}


def no_resolution(arrival_s: NDArray[np.float64]) -> float | None:
    """Take times as fine as they are."""
    return None


@dataclass(frozen=True)
class Format:
    """One public format.

    name: what users call it. arrival, prompt, output: its column names.
    labels: columns kept as labels where a file has them, by field of Trace. tier: column of tiers.
    blocks: column of prefix block ids, tokens in a block, and what reads PrefixBlocks from values.
    screen: columns, where a file has them, by which drops marks rows that are no requests, by reason.
    resolution: s to which times are known, from all of them. left_out: columns a reader might
    expect to be kept.
    """

    name: str
    arrival: str
    prompt: str
    output: str
    clock: Clock = SECONDS
    labels: Mapping[str, str] = field(default_factory=dict)
    tier: str | None = None
    blocks: BlockColumn | None = None
    screen: tuple[str, ...] = ()
    drops: Callable[[Columns, Where], dict[str, NDArray[np.bool_]]] = drop_none
    resolution: Callable[[NDArray[np.float64]], float | None] = no_resolution
    left_out: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns a file must have."""
        return self.arrival, self.prompt, self.output

    def missing(self, header: Sequence[str]) -> list[str]:
        """Return the columns that a header lacks; empty when the file is of this format."""
        return [column for column in self.columns if column not in header]
