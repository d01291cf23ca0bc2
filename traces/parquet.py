"""Our own trace file: one parquet table with the columns of a Trace, read back bit for bit.

Name, source, notes and the order of label names are in the schema's metadata, under servegym_trace.
A parquet file from elsewhere loads too when it has arrival_s, prompt_tokens and output_tokens.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servegym.traces.labels import Labels
from servegym.traces.raw import RawTrace
from servegym.traces.trace import Trace

METADATA_KEY = b"servegym_trace"
REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")


def write_trace(trace: Trace, path: Path) -> None:
    """Write every column and text of a trace, but not its load report."""
    columns = {name: pa.array(getattr(trace, name)) for name in (*REQUIRED, "tier")}
    about = {"name": trace.name, "source": trace.source, "notes": list(trace.notes), "labels": {}}
    for name, labels in (("category", trace.category), ("tenant", trace.tenant)):
        if labels is not None:
            names = pa.array(list(labels.names), pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(labels.codes), names)
            about["labels"][name] = list(labels.names)
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(about)}), path)


def read_raw(path: Path, max_rows: int | None) -> RawTrace:
    """Read the columns of a parquet trace; ValueError lists the columns that are missing."""
    table = pq.read_table(path)
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise ValueError(f"{path.name}: columns missing: {missing}; found {table.column_names}")
    table = table.slice(0, max_rows)
    about = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    arrival_s, prompt_tokens, output_tokens = (table[name].to_numpy() for name in REQUIRED)
    return RawTrace(
        path.name,
        "servegym parquet",
        np.arange(1, len(table) + 1),
        arrival_s,
        prompt_tokens,
        output_tokens,
        tier=table["tier"].to_numpy() if "tier" in table.column_names else None,
        category=read_labels(table, "category", about),
        tenant=read_labels(table, "tenant", about),
        name=about.get("name", path.stem),
        source=about.get("source", path.name),
        notes=tuple(about.get("notes", ())),
    )


def read_labels(table: pa.Table, column: str, about: dict) -> Labels | None:
    """Return a label column with its names in the order they were saved, None when absent."""
    if column not in table.column_names:
        return None
    values = table[column].cast(pa.string()).to_pylist()
    names = about.get("labels", {}).get(column)
    if names is None:
        return Labels.of(values)
    code_of = {name: code for code, name in enumerate(names)}
    return Labels(names, np.array([code_of[value] for value in values], dtype=np.int16))
