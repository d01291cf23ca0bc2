"""load: a trace from a file of any known format, told by its content, not by its name.

Nothing is loaded in part: a fault is a ValueError naming the row. What was dropped and why is in
`trace.report`, with one line of rates to look at before believing the file.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from servegym.traces.formats import FORMATS, LENGTH_COLUMNS, UNSUPPORTED, Format
from servegym.traces.raw import RawTrace, to_trace
from servegym.traces.report import LoadReport
from servegym.traces.table import Table, open_text, read_table
from servegym.traces.trace import Trace
from servegym.traces.validation import rows_of

PARQUET_MAGIC = b"PAR1"
SERVEGEN_FILE = re.compile(r"chunk-\d+-(trace\.csv|dataset\.json)|.*\.(tar|tar\.gz|tgz)")
DATA_SUFFIX = re.compile(r"(\.(csv|jsonl|json|parquet|gz|txt))+$")


class NoArrivalsError(ValueError):
    """The file has lengths but no arrival times, so it is no trace."""


def load(
    path: str | Path,
    sort: bool = False,
    start_s: float | None = None,
    end_s: float | None = None,
    max_rows: int | None = None,
) -> Trace:
    """Read a trace: Azure, Mooncake, Vidur, a vLLM reference run, or our own parquet; gzip or not.

    sort: order rows by arrival instead of refusing an unsorted file. start_s, end_s: keep
    start_s <= arrival < end_s, in s of the file's own clock; arrivals then count from start_s.
    max_rows: read only that many data rows. Raises ValueError naming the row, column or format.
    """
    path = Path(path)
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows = {max_rows}; must be >= 0")
    raw = read_raw(path, max_rows)
    trace, dropped = to_trace(raw, sort)
    if start_s is not None or end_s is not None:
        n_before = len(trace)
        trace = trace.window(start_s, end_s)
        dropped["outside the window"] = n_before - len(trace)
    report = LoadReport(raw.file, raw.format, len(raw.rows), len(trace), dropped, trace.rates())
    return replace(trace, report=report)


def read_raw(path: Path, max_rows: int | None) -> RawTrace:
    """Read the columns of a file, unchecked; ValueError when no format fits."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    if is_parquet:
        from servegym.traces.parquet import read_raw as read_parquet

        return read_parquet(path, max_rows)
    if SERVEGEN_FILE.fullmatch(path.name):
        raise unsupported(path.name, "ServeGen client data (distributions, not requests)")
    try:
        with open_text(path) as text:
            table = read_table(text, path.name)
            return read_columns(table, choose_format(table), max_rows)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


def read_columns(table: Table, chosen: Format, max_rows: int | None) -> RawTrace:
    """Return the three columns of a table whose format is known."""
    rows, columns = table.read(chosen.columns, max_rows)
    return RawTrace(
        table.file,
        chosen.name,
        rows,
        chosen.to_seconds(columns[chosen.arrival], rows_of(table.file, rows)),
        columns[chosen.prompt],
        columns[chosen.output],
        name=DATA_SUFFIX.sub("", table.file),
        source=f"{chosen.name}, {table.file}",
    )


def choose_format(table: Table) -> Format:
    """Return the first format whose columns are all there, else raise the error that says why."""
    for candidate in FORMATS:
        if not candidate.missing(table.header):
            return candidate
    for name, columns in UNSUPPORTED.items():
        if columns <= set(table.header):
            raise unsupported(table.file, name)
    for pair in LENGTH_COLUMNS:
        if set(pair) <= set(table.header):
            raise NoArrivalsError(no_arrivals(table.file, pair))
    raise ValueError(no_format(table.file, table.header))


def unsupported(file: str, name: str) -> ValueError:
    """Return the error for a format that is known by name but not read yet."""
    known = ", ".join(candidate.name for candidate in FORMATS)
    return ValueError(f"{file} is {name}, which is not supported yet; supported: {known}")


def no_arrivals(file: str, pair: Sequence[str]) -> str:
    """Say that a file has lengths but no times."""
    wanted = ", ".join(f"{c.arrival} ({c.name})" for c in FORMATS if (c.prompt, c.output) == pair)
    advice = "fit a workload to its lengths with `python -m servegym.traces.fit`"
    return f"{file} has lengths ({', '.join(pair)}) but no arrival column {wanted}; {advice}"


def no_format(file: str, header: Sequence[str]) -> str:
    """List the columns found, and what each format that was tried lacks."""
    lines = [f"  {c.name}: missing {', '.join(c.missing(header))}" for c in FORMATS]
    return "\n".join([f"{file} fits no known format; found {', '.join(header)}; tried:", *lines])
