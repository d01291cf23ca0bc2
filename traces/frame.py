"""A trace as a pandas table, one row per request, and back.

Columns: arrival_s, prompt_tokens, output_tokens, tier, and category, tenant, model and session when
known. Prefix blocks and the resolution of times stay out.
"""

import numpy as np
import pandas as pd

from servegym.traces.labels import LabelEncoder, Labels
from servegym.traces.trace import Trace
from servegym.traces.validation import check_times

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
LABELS = ("category", "tenant", "model", "session")


def to_frame(trace: Trace) -> pd.DataFrame:
    """Return the requests in order of arrival; labels become categories."""
    columns = {name: getattr(trace, name) for name in (*REQUIRED, "tier")}
    for name in LABELS:
        labels: Labels | None = getattr(trace, name)
        if labels is not None:
            columns[name] = pd.Categorical.from_codes(labels.codes, list(labels.names))
    return pd.DataFrame(columns)


def from_frame(frame: pd.DataFrame, sort: bool, name: str, source: str) -> Trace:
    """Build a trace; ValueError lists missing columns, or names the value and index at fault."""
    missing = [column for column in REQUIRED if column not in frame.columns]
    if missing:
        raise ValueError(f"columns missing: {missing}; found {list(frame.columns)}")
    notes: tuple[str, ...] = ()
    if sort:
        times = check_times(frame["arrival_s"].to_numpy())
        order = np.argsort(times, kind="stable")
        frame, notes = frame.iloc[order], ("sorted by arrival",)
    return Trace(
        *(frame[column].to_numpy() for column in REQUIRED),
        tier=frame["tier"].to_numpy() if "tier" in frame.columns else None,
        **{name: labels_of(frame, name) for name in LABELS},
        name=name,
        source=source,
        notes=notes,
    )


def labels_of(frame: pd.DataFrame, column: str) -> Labels | None:
    """Return a column as labels, missing ones as not recorded; None without such a column."""
    if column not in frame.columns:
        return None
    values = frame[column]
    encoder = LabelEncoder()
    if isinstance(values.dtype, pd.CategoricalDtype):
        encoder = LabelEncoder(str(category) for category in values.cat.categories)
    encoder.add(values.astype(object).where(values.notna(), None))
    return encoder.labels()
