"""Mooncake traces: JSON lines with timestamp (ms), input_length, output_length.

Times are kept as recorded; the conversation trace sits on a 3-second grid, so bursts shorter than
that are an artefact. The prefix hashes (hash_ids) are not read.
Source: github.com/kvcache-ai/Mooncake (Qin et al., FAST 2025).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Format, seconds
from servegym.traces.validation import Where

MS_PER_S = 1e3


def from_ms(values: Sequence[Any], where: Where) -> NDArray[np.float64]:
    """Return s from ms, float64[n]."""
    return seconds(values, where) / MS_PER_S


FORMAT = Format(
    name="Mooncake trace",
    arrival="timestamp",
    prompt="input_length",
    output="output_length",
    to_seconds=from_ms,
)
