"""load: a trace from a file of any known format, told by its content, not by its name.

Nothing is loaded in part: a fault is a ValueError naming the row. What was dropped and why is in
`trace.report`, with one line of rates and warnings to look at before believing the file.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from servegym.traces import text
from servegym.traces.builder import TraceBuilder
from servegym.traces.source import Source
from servegym.traces.text import NoArrivalsError
from servegym.traces.trace import Trace

PARQUET_MAGIC = b"PAR1"

__all__ = ["NoArrivalsError", "load"]


def load(
    path: str | Path,
    sort: bool = False,
    start_s: float | None = None,
    end_s: float | None = None,
    max_rows: int | None = None,
) -> Trace:
    """Read a request log: Azure, BurstGPT, Mooncake, Vidur, vLLM, splitwise-sim, plain, our parquet.

    sort: order rows by arrival instead of refusing an unsorted file. start_s, end_s: keep
    start_s <= arrival < end_s, in s of the file's own clock; arrivals then count from start_s.
    max_rows: read only that many data rows. Rows are read in chunks: a part of a large file takes
    memory for that part, and unless sorting, reading ends soon after end_s. Raises ValueError
    naming the row, column or format.
    """
    path = Path(path)
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows = {max_rows}; must be >= 0")
    with readable(path), open_source(path, max_rows) as source:
        builder = TraceBuilder(source, sort, start_s, end_s)
        for chunk in source.chunks:
            if not builder.add(chunk):
                break
    return builder.trace()


def open_source(path: Path, max_rows: int | None) -> AbstractContextManager[Source]:
    """Open a file as chunks of columns; ValueError when no format fits."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    if is_parquet:
        from servegym.traces.parquet import open_source as open_parquet

        return open_parquet(path, max_rows)
    return text.open_source(path, max_rows)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of damaged files into a ValueError that names the file."""
    try:
        yield
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
