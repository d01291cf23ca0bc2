"""Source: an opened file as chunks of columns, whatever its format, before they are checked.

A reader (text.py, parquet.py) makes one; TraceBuilder makes a Trace of it. Chunks are read when they
are asked for, so a part of a large file costs a part of its time and memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.formats.format import SECONDS, Clock, no_resolution
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.validation import Where


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows.

    where: their places in the file. ticks: arrivals by the source's clock. labels: one value a row,
    by field of Trace. drops: rows that are no requests, by reason.
    """

    where: Where
    ticks: NDArray[Any]
    prompt_tokens: ArrayLike
    output_tokens: ArrayLike
    tier: ArrayLike | None = None
    labels: Mapping[str, Sequence[object]] = field(default_factory=dict)
    blocks: PrefixBlocks | None = None
    drops: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A file and what is known of it before its rows.

    file: its name, for messages. format: what it is read as. labels: the label columns it has, by
    field of Trace, with names known beforehand. block_tokens: size of its prefix blocks, None
    without. resolution_s: s to which times are known; resolution finds it from all of them otherwise.
    """

    file: str
    format: str
    chunks: Iterator[Chunk]
    clock: Clock = SECONDS
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    block_tokens: int | None = None
    resolution_s: float | None = None
    resolution: Callable[[NDArray[np.float64]], float | None] = no_resolution
    name: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
