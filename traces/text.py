"""Text files as sources: CSV and JSON lines of a public format, told by the columns of the header.

A file that is no request log is refused with what it is and what to use instead.
"""

import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from servegym.traces.formats import FORMATS, LENGTH_COLUMNS, Format, servegen
from servegym.traces.formats.format import BlockColumn
from servegym.traces.source import Chunk, Source
from servegym.traces.table import Table, is_archive, open_text, read_table
from servegym.traces.validation import cut, rows_of

DATA_SUFFIX = re.compile(r"(\.(csv|jsonl|json|parquet|gz|txt))+$")
MEMBERS_LOOKED_AT = 20
MOST_NAMED = 20


class NoArrivalsError(ValueError):
    """The file has lengths but no arrival times, so it is no trace."""


@contextmanager
def open_source(path: Path, max_rows: int | None) -> Iterator[Source]:
    """Open a text file of a known format; ValueError says why it is none."""
    refuse_what_is_no_log(path)
    with open_text(path) as text:
        table = read_table(text, path.name)
        chosen = choose_format(table)
        left_out = [column for column in chosen.left_out if column in table.header]
        yield Source(
            path.name,
            chosen.name,
            chunks_of(table, chosen, max_rows),
            chosen.clock,
            labels=dict.fromkeys(label_columns(table, chosen), ()),
            block_tokens=blocks[1] if (blocks := block_column(table, chosen)) else None,
            resolution=chosen.resolution,
            name=DATA_SUFFIX.sub("", path.name),
            source=f"{chosen.name}, {path.name}",
            notes=tuple(f"column {column} is not kept" for column in left_out),
        )


def chunks_of(table: Table, chosen: Format, max_rows: int | None) -> Iterator[Chunk]:
    """Yield the rows of a table whose format is known, at most max_rows of them."""
    labels = label_columns(table, chosen)
    tier = chosen.tier if chosen.tier in table.header else None
    screen = [name for name in chosen.screen if name in table.header]
    optional = [*labels.values(), *screen, *([tier] if tier else [])]
    blocks = block_column(table, chosen)
    names = dict.fromkeys([*chosen.columns, *optional, *(blocks[:1] if blocks else ())])
    n_read = 0
    for rows, columns in table.chunks(list(names), max_rows):
        where = rows_of(table.file, rows, first=n_read)
        yield Chunk(
            where,
            chosen.clock.to_ticks(columns[chosen.arrival], where),
            columns[chosen.prompt],
            columns[chosen.output],
            tier=columns[tier] if tier else None,
            labels={field: columns[name] for field, name in labels.items()},
            blocks=blocks[2](columns[blocks[0]], where) if blocks else None,
            drops=chosen.drops({name: columns[name] for name in screen}, where),
        )
        n_read += len(rows)


def label_columns(table: Table, chosen: Format) -> dict[str, str]:
    """Return the label columns that a file has, by field of Trace."""
    return {field: name for field, name in chosen.labels.items() if name in table.header}


def block_column(table: Table, chosen: Format) -> BlockColumn | None:
    """Return the column of prefix blocks that the format knows, None if the file has none."""
    known = chosen.blocks
    return known if known is not None and known[0] in table.header else None


def choose_format(table: Table) -> Format:
    """Return the first format whose columns are all there, else raise the error that says why."""
    for candidate in FORMATS:
        if not candidate.missing(table.header):
            return candidate
    if servegen.is_rates(table.header):
        raise ValueError(servegen.rates_refusal(table.file))
    for pair in LENGTH_COLUMNS:
        if set(pair) <= set(table.header):
            raise NoArrivalsError(no_arrivals(table.file, pair))
    raise ValueError(no_format(table.file, table.header))


def refuse_what_is_no_log(path: Path) -> None:
    """Refuse ServeGen's client files and archives, whose content reads as a broken table."""
    if servegen.CLIENT_FILE.fullmatch(path.name):
        raise ValueError(servegen.refusal(path.name))
    if not is_archive(path):
        return
    with tarfile.open(path) as archive:
        names = [Path(member.name).name for member in islice(archive, MEMBERS_LOOKED_AT)]
    if any(servegen.CLIENT_FILE.fullmatch(name) for name in names):
        raise ValueError(servegen.refusal(path.name))
    raise ValueError(f"{path.name} is a tar archive; unpack it and load the trace inside")


def no_arrivals(file: str, pair: Sequence[str]) -> str:
    """Say that a file has lengths but no times, and what can be done with it."""
    wanted = ", ".join(f"{c.arrival} ({c.name})" for c in FORMATS if (c.prompt, c.output) == pair)
    advice = "fit a workload to its lengths (servegym trace fit), or draw arrivals (load_lengths, --rate)"
    return f"{file} has lengths ({', '.join(pair)}) but no arrival column {wanted}; {advice}"


def no_format(file: str, header: Sequence[str]) -> str:
    """List the columns found, and what each format that was tried lacks."""
    lines = [f"  {c.name}: missing {', '.join(c.missing(header))}" for c in FORMATS]
    found = listed(header)
    return "\n".join([f"{file} fits no known format; found {found}; tried:", *lines])


def listed(header: Sequence[str]) -> str:
    """Return the names of columns as a message shows them: the first few, each cut."""
    names = ", ".join(cut(name) for name in header[:MOST_NAMED])
    n_more = len(header) - MOST_NAMED
    return f"{names} and {n_more:,} more" if n_more > 0 else names
