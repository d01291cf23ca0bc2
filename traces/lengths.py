"""load_lengths: a trace from a file of lengths alone (ShareGPT, arXiv), with arrivals drawn for it.

The file's rows keep their order and arrive as a Poisson process; every pair of lengths is used once,
so their correlation stays. To draw any number of requests, fit a workload instead (traces/fit.py).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from servegym.traces.builder import TraceBuilder
from servegym.traces.formats import FORMATS, LENGTH_COLUMNS
from servegym.traces.load import readable
from servegym.traces.source import Chunk, Source
from servegym.traces.streams import stream
from servegym.traces.table import Table, open_text, read_table
from servegym.traces.text import listed
from servegym.traces.trace import Trace
from servegym.traces.validation import rows_of


def load_lengths(
    path: str | Path, rate_per_s: float, seed: int, max_rows: int | None = None
) -> Trace:
    """Read lengths and draw Poisson arrivals at a mean rate of rate_per_s.

    The first m arrivals are the same for every max_rows >= m. ValueError for a file without known
    length columns, a rate that is not finite and > 0, or a bad row.
    """
    path = Path(path)
    if not (np.isfinite(rate_per_s) and rate_per_s > 0.0):
        raise ValueError(f"rate_per_s = {rate_per_s}; must be finite and > 0")
    with readable(path), open_text(path) as text:
        table = read_table(text, path.name)
        pair = length_columns(table)
        source = Source(
            path.name,
            "lengths",
            arriving(table, pair, rate_per_s, seed, max_rows),
            name=path.name.split(".")[0],
            source=f"lengths of {path.name}",
            notes=(
                f"poisson arrivals at {rate_per_s:g} req/s drawn with seed {seed}: no recording",
            ),
        )
        builder = TraceBuilder(source, sort=False, start_s=None, end_s=None)
        for chunk in source.chunks:
            builder.add(chunk)
    return builder.trace()


def length_columns(table: Table) -> tuple[str, str]:
    """Return the prompt and output columns of a file; ValueError if it has none, or has arrivals."""
    for known in FORMATS:
        if not known.missing(table.header):
            raise ValueError(f"{table.file} has arrivals ({known.arrival}): load it without a rate")
    for pair in LENGTH_COLUMNS:
        if set(pair) <= set(table.header):
            return pair
    raise ValueError(f"{table.file} has no known length columns; found {listed(table.header)}")


def arriving(
    table: Table, pair: tuple[str, str], rate_per_s: float, seed: int, max_rows: int | None
) -> Iterator[Chunk]:
    """Yield the rows of a table with arrivals drawn for them."""
    random = stream(seed, "arrivals")
    n_read, last_s = 0, 0.0
    for rows, columns in table.chunks(pair, max_rows):
        times = last_s + np.cumsum(random.standard_exponential(len(rows))) / rate_per_s
        n_read, last_s = n_read + len(rows), float(times[-1])
        where = rows_of(table.file, rows, first=n_read - len(rows))
        yield Chunk(where, times, columns[pair[0]], columns[pair[1]])
