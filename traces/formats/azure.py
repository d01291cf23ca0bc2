"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Arrivals count from the earliest row and keep all seven fraction digits (100 ns) exactly. A UTC mark
(+00:00 or Z), mixed fraction lengths and further columns are accepted.
Source: github.com/Azure/AzurePublicDataset (Patel et al., "Splitwise", ISCA 2024).
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Format
from servegym.traces.validation import Where, refuse

NS_PER_S = 1e9
TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|\+00:00)?")
EXPECTED = "must be YYYY-MM-DD HH:MM:SS.fffffff, without a zone or in UTC"


def since_first(values: Sequence[Any], where: Where) -> NDArray[np.float64]:
    """Return s since the earliest timestamp, float64[n]; exact to the nearest double."""
    texts = [without_zone(value, index, where) for index, value in enumerate(values)]
    if not texts:
        return np.zeros(0)
    try:
        times = np.array(texts, dtype="datetime64[ns]")
    except ValueError:
        for index, text in enumerate(texts):
            refuse_unless_date(text, index, where)
        raise
    return (times - times.min()).astype(np.int64) / NS_PER_S


def without_zone(value: Any, index: int, where: Where) -> str:
    """Return a timestamp without its UTC mark, ValueError naming the row that has none."""
    if value is None or value == "":
        raise ValueError(f"TIMESTAMP[{index}] is missing{where(index)}")
    matched = TIMESTAMP.fullmatch(str(value).strip())
    if matched is None:
        refuse("TIMESTAMP", index, value, EXPECTED, where)
    return matched[1]


def refuse_unless_date(text: str, index: int, where: Where) -> None:
    """Refuse a timestamp that has the right shape but names no moment, such as month 13."""
    try:
        np.datetime64(text, "ns")
    except ValueError:
        refuse("TIMESTAMP", index, text, EXPECTED, where)


FORMAT = Format(
    name="Azure LLM inference trace",
    arrival="TIMESTAMP",
    prompt="ContextTokens",
    output="GeneratedTokens",
    to_seconds=since_first,
)
