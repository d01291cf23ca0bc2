"""Mooncake traces: JSON lines with timestamp (ms), input_length, output_length, hash_ids.

hash_ids are kept: one id per 512 tokens of the prompt, equal ids being the same tokens after the
same prefix. Times are kept as recorded; where they come in batches a few seconds apart (the
conversation trace: 3 s), bursts shorter than that are an artefact and the trace says so.
Source: github.com/kvcache-ai/Mooncake (Qin et al., FAST 2025).
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Clock, Format
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.validation import Where, refuse, refuse_missing

MS_PER_S = 1e3
BLOCK_TOKENS = 512
FEWEST_BATCHES = 10
NEAR = 0.01


def prefix_blocks(values: Sequence[Any], where: Where) -> PrefixBlocks:
    """Return the block ids of each row; ValueError names one that is no list of whole numbers."""
    for index, value in enumerate(values):
        if value is None:
            refuse_missing("hash_ids", index, where)
        if not isinstance(value, list) or not all(map(is_id, value)):
            refuse("hash_ids", index, value, "must be a list of block ids (whole numbers)", where)
    counts = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    ids = np.fromiter(chain.from_iterable(values), dtype=np.int64, count=int(counts.sum()))
    return PrefixBlocks(ids, np.concatenate([[0], np.cumsum(counts)]), BLOCK_TOKENS)


def is_id(value: Any) -> bool:
    """Return whether a JSON value is a whole number of 64 bits."""
    return type(value) is int and -(2**63) <= value < 2**63


def batch_interval_s(arrival_s: NDArray[np.float64]) -> float | None:
    """Return the interval of a recording whose requests come in batches; None if they do not.

    They do if most requests share their time with another and the gaps between batches are within
    1 % of multiples of the middle one.
    """
    gaps = np.diff(arrival_s)
    between = gaps[gaps > 0.0]
    if len(between) < FEWEST_BATCHES or 2 * len(between) > len(gaps):
        return None
    interval = float(np.median(between))
    multiples = np.maximum(np.rint(between / interval), 1.0)
    is_grid = (np.abs(between - multiples * interval) <= NEAR * multiples * interval).all()
    return interval if is_grid else None


FORMAT = Format(
    name="Mooncake trace",
    arrival="timestamp",
    prompt="input_length",
    output="output_length",
    clock=Clock(ticks_per_s=MS_PER_S),
    blocks=("hash_ids", BLOCK_TOKENS, prefix_blocks),
    resolution=batch_interval_s,
)
