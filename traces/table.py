"""A text file as named columns: CSV or JSON lines, plain or gzip, with or without a BOM.

Fields are found by header name, never by position. Row N is line N of the file, as an editor shows
it, blank lines and the header counted. A Git-LFS pointer is called that, since it is the usual cause
of a missing column.
"""

import csv
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.validation import cut, quoted

LFS_POINTER = "version https://git-lfs.github.com/spec/"
JSON_ARRAY = re.compile(r"\[\s*([\[{\"\]\d-]|$)")
GZIP_MAGIC = b"\x1f\x8b"
TAR_MAGIC, TAR_MAGIC_AT, TAR_HEADER = b"ustar", 257, 512

ROWS_PER_CHUNK = 32_768

Record = tuple[int, Sequence[Any]]
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Table:
    """A header and a one-pass iterator of (row number, values in the header's order)."""

    file: str
    header: tuple[str, ...]
    records: Iterator[Record]

    def read(self, names: Sequence[str], max_rows: int | None) -> tuple[NDArray[np.int64], Columns]:
        """Return the row numbers and the named columns of at most max_rows rows.

        A value that a row lacks is None.
        """
        rows, columns = [np.zeros(0, np.int64)], {name: [] for name in names}
        for chunk_rows, chunk in self.chunks(names, max_rows):
            rows.append(chunk_rows)
            for name in names:
                columns[name] += chunk[name]
        return np.concatenate(rows), columns

    def chunks(
        self, names: Sequence[str], max_rows: int | None
    ) -> Iterator[tuple[NDArray[np.int64], Columns]]:
        """Yield row numbers and named columns, ROWS_PER_CHUNK rows at a time."""
        places = [self.place(name) for name in names]
        records = islice(self.records, max_rows)
        while chunk := list(islice(records, ROWS_PER_CHUNK)):
            columns = {
                name: [values[place] if place < len(values) else None for _, values in chunk]
                for name, place in zip(names, places, strict=True)
            }
            yield np.array([row for row, _ in chunk], dtype=np.int64), columns

    def place(self, name: str) -> int:
        """Return the position of a column; ValueError when the header has it twice."""
        if self.header.count(name) > 1:
            raise ValueError(f"{self.file}: column {quoted(name)} appears twice in the header")
        return self.header.index(name)


def open_text(path: Path) -> IO[str]:
    """Open a plain or gzip text file (told by content)."""
    with path.open("rb") as file:
        is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    if is_gzip:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("rt", encoding="utf-8-sig", newline="")


def is_archive(path: Path) -> bool:
    """Return whether a file is a tar archive, gzip or not (told by content)."""
    with path.open("rb") as file:
        is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    try:
        with gzip.open(path) if is_gzip else path.open("rb") as file:
            return file.read(TAR_HEADER)[TAR_MAGIC_AT:].startswith(TAR_MAGIC)
    except (EOFError, OSError):
        return False


def read_table(text: IO[str], file: str) -> Table:
    """Return the header and rows of an open file: JSON lines if it starts with {, else CSV.

    ValueError for a Git-LFS pointer and for what is no table of text.
    """
    first, row = text.readline(), 1
    while first and not first.strip():
        first, row = text.readline(), row + 1
    if not first:
        raise ValueError(f"{file} is empty: no header and no rows")
    refuse_no_table(first, file)
    if first.lstrip().startswith("{"):
        return json_table(first, row, text, file)
    return csv_table(first, row, text, file)


def refuse_no_table(first: str, file: str) -> None:
    """Refuse a file whose first line shows that it is no table."""
    if first.startswith(LFS_POINTER):
        advice = "a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`"
        raise ValueError(f"{file} is {advice}")
    if "\0" in first:
        raise ValueError(f"{file} is not a text file: it has NUL bytes")
    if JSON_ARRAY.match(first.strip()):
        raise ValueError(f"{file} is a JSON array, not JSON lines (one object a line)")


def csv_table(first: str, first_row: int, text: IO[str], file: str) -> Table:
    """Return a CSV file's table; ValueError names a row with more fields than the header."""
    header = tuple(name.strip() for name in next(csv.reader([first])))

    def records() -> Iterator[Record]:
        reader = csv.reader(text)
        for values in reader:
            row = first_row + reader.line_num
            if len(values) > len(header):
                shown = f"{len(values)} fields; the header has {len(header)}"
                raise ValueError(f"row {row} of {file} has {shown}")
            if values:
                yield row, values

    return Table(file, header, records())


def json_table(first: str, first_row: int, text: IO[str], file: str) -> Table:
    """Return a JSON-lines table; its header is the fields of the first line."""
    header = tuple(parse_object(first, first_row, file))

    def records() -> Iterator[Record]:
        for row, line in enumerate(chain_first(first, text), start=first_row):
            if line.strip():
                fields = parse_object(line, row, file)
                yield row, [fields.get(name) for name in header]

    return Table(file, header, records())


def chain_first(first: str, text: IO[str]) -> Iterator[str]:
    """Yield the line already read, then the rest."""
    yield first
    yield from text


def parse_object(line: str, row: int, file: str) -> dict[str, Any]:
    """Return one JSON object; ValueError names the row that is none."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"row {row} of {file} is not JSON: {cut(str(error))}") from None
    except RecursionError:
        raise ValueError(f"row {row} of {file} is not JSON that can be read: too nested") from None
    if not isinstance(fields, dict):
        raise ValueError(f"row {row} of {file} is not a JSON object")
    return fields
