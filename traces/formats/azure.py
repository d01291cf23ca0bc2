"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Arrivals count from the earliest row and keep all seven fraction digits (100 ns) exactly. A UTC mark
(+00:00 as in 2024, Z as in 2025), mixed fraction lengths and further columns are accepted; images of
the multimodal trace (NumImages) are not kept. Sources: github.com/Azure/AzurePublicDataset (2023:
Patel et al., "Splitwise", ISCA 2024; 2024: "DynamoLLM", HPCA 2025; 2025: "ModServe", SoCC 2025).
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Clock, Format
from servegym.traces.validation import Where, refuse, refuse_missing

NS_PER_S = 1e9
TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|\+00:00)?")
FIRST_YEAR, LAST_YEAR = 1678, 2261
EXPECTED = "must be YYYY-MM-DD HH:MM:SS.fffffff, without a zone or in UTC"


def nanoseconds(values: Sequence[Any], where: Where) -> NDArray[np.int64]:
    """Return ns since 1970, int64[n], exact."""
    texts = [without_zone(value, index, where) for index, value in enumerate(values)]
    try:
        return np.array(texts, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:
        for index, text in enumerate(texts):
            refuse_unless_date(text, index, where)
        raise


def without_zone(value: Any, index: int, where: Where) -> str:
    """Return a timestamp without its UTC mark, ValueError naming the row that has none."""
    if value is None or value == "":
        refuse_missing("TIMESTAMP", index, where)
    matched = TIMESTAMP.fullmatch(str(value).strip())
    if matched is None:
        refuse("TIMESTAMP", index, value, EXPECTED, where)
    if not FIRST_YEAR <= int(matched[1][:4]) <= LAST_YEAR:
        rule = f"must be in the years {FIRST_YEAR} to {LAST_YEAR}"
        refuse("TIMESTAMP", index, value, rule, where)
    return matched[1]


def refuse_unless_date(text: str, index: int, where: Where) -> None:
    """Refuse a timestamp that has the right shape but names no moment, such as month 13."""
    try:
        np.datetime64(text, "ns")
    except ValueError:
        refuse("TIMESTAMP", index, text, EXPECTED, where)


def earliest_row(earliest: Any) -> Any:
    """Count from the earliest row."""
    return earliest


FORMAT = Format(
    name="Azure LLM inference trace",
    arrival="TIMESTAMP",
    prompt="ContextTokens",
    output="GeneratedTokens",
    clock=Clock(nanoseconds, NS_PER_S, earliest_row),
    left_out=("NumImages",),
)
