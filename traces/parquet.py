"""Our own trace file: one parquet table with the columns of a Trace, read back bit for bit.

Name, source, notes, resolution, block size and the order of label names are in the schema's
metadata, under servegym_trace. A parquet file from elsewhere loads too when it has arrival_s,
prompt_tokens and output_tokens; tier and labels are read where they are there.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servegym.traces.formats.format import numbers
from servegym.traces.labels import Labels
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.source import Chunk, Source
from servegym.traces.table import ROWS_PER_CHUNK
from servegym.traces.trace import Trace
from servegym.traces.validation import rows_of

METADATA_KEY = b"servegym_trace"
REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
LABELS = ("category", "tenant", "model", "session")
BLOCKS = "prefix_blocks"
MOST_METADATA = 2**31 - 1  # bytes: a million session names do not fit pyarrow's default


def write_trace(trace: Trace, path: Path) -> None:
    """Write every column and text of a trace, but not its load report."""
    columns = {name: pa.array(getattr(trace, name)) for name in (*REQUIRED, "tier")}
    about: dict[str, Any] = {"name": trace.name, "source": trace.source, "labels": {}}
    about |= {"notes": list(trace.notes), "resolution_s": trace.resolution_s}
    for name in LABELS:
        labels: Labels | None = getattr(trace, name)
        if labels is not None:
            names = pa.array(list(labels.names), pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(labels.codes), names)
            about["labels"][name] = list(labels.names)
    if (blocks := trace.prefix_blocks) is not None:
        columns[BLOCKS] = pa.LargeListArray.from_arrays(blocks.offsets, blocks.ids)
        about["block_tokens"] = blocks.block_tokens
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(about)}), path)


@contextmanager
def open_source(path: Path, max_rows: int | None) -> Iterator[Source]:
    """Open a parquet trace; ValueError lists the columns that are missing."""
    try:
        file = pq.ParquetFile(path, thrift_string_size_limit=MOST_METADATA)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    with file:
        found = file.schema_arrow.names
        missing = [name for name in REQUIRED if name not in found]
        if missing:
            raise ValueError(f"{path.name}: columns missing: {missing}; found {found}")
        about = json.loads((file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
        yield Source(
            path.name,
            "servegym parquet",
            chunks_of(file, path.name, about, max_rows),
            labels={
                name: about.get("labels", {}).get(name, ()) for name in LABELS if name in found
            },
            block_tokens=about.get("block_tokens"),
            resolution_s=about.get("resolution_s"),
            name=about.get("name", path.stem),
            source=about.get("source", path.name),
            notes=tuple(about.get("notes", ())),
        )


def chunks_of(
    file: pq.ParquetFile, name: str, about: dict[str, Any], max_rows: int | None
) -> Iterator[Chunk]:
    """Yield the rows of a parquet trace, at most max_rows of them; row 1 is the first."""
    found = file.schema_arrow.names
    labels = [label for label in LABELS if label in found]
    blocks = [BLOCKS] if "block_tokens" in about else []
    tier = ["tier"] if "tier" in found else []
    left = file.metadata.num_rows if max_rows is None else max_rows
    n_read = 0
    for batch in file.iter_batches(ROWS_PER_CHUNK, columns=[*REQUIRED, *tier, *labels, *blocks]):
        rows = batch.slice(0, left - n_read)
        if not len(rows):
            return
        where = rows_of(name, range(n_read + 1, n_read + len(rows) + 1), first=n_read)
        yield Chunk(
            where,
            numbers(values_of(rows, "arrival_s"), where),
            values_of(rows, "prompt_tokens"),
            values_of(rows, "output_tokens"),
            tier=values_of(rows, "tier") if tier else None,
            labels={label: rows[label].cast(pa.string()).to_pylist() for label in labels},
            blocks=blocks_of(rows[BLOCKS], about["block_tokens"]) if blocks else None,
        )
        n_read += len(rows)


def values_of(rows: pa.RecordBatch, column: str) -> Any:
    """Return a column's values: numbers as an array, anything missing as None in a list."""
    values = rows[column]
    return values.to_pylist() if values.null_count else values.to_numpy(zero_copy_only=False)


def blocks_of(lists: pa.Array, block_tokens: int) -> PrefixBlocks:
    """Return the prefix blocks of a column of lists of ids."""
    counts = np.asarray(lists.value_lengths(), dtype=np.int64)
    return PrefixBlocks(lists.flatten().to_numpy(), np.cumsum([0, *counts]), block_tokens)
