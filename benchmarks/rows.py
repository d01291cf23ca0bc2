"""Rows: the figures a benchmark reports, as a table for people and as JSON for programs.

A row is {name, value, unit, target, met}. `met` is None where a figure has no target.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One measured figure.

    value: in `unit`, None when it could not be measured. target: a number or a text such as
    "<= 4", None without one. met: whether the target is reached, None without one.
    """

    name: str
    value: float | None
    unit: str
    target: float | str | None = None
    met: bool | None = None


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows as a JSON list of objects."""
    return json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False)


def to_text(rows: Sequence[Row]) -> str:
    """Return an aligned table with one line a row, and a last line that counts missed targets."""
    header = ("name", "value", "unit", "target", "met")
    cells = [
        header,
        *((r.name, shown(r.value), r.unit, shown(r.target), word(r.met)) for r in rows),
    ]
    widths = [max(len(line[k]) for line in cells) for k in range(len(header))]
    lines = [
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {target:>{widths[3]}}  {met}"
        for name, value, unit, target, met in cells
    ]
    return "\n".join([*(line.rstrip() for line in lines), summary_line(rows)])


def summary_line(rows: Sequence[Row]) -> str:
    """Say how many targets were met."""
    judged = [row.met for row in rows if row.met is not None]
    return f"{sum(judged)} of {len(judged)} targets met"


def is_all_met(rows: Sequence[Row]) -> bool:
    """Return whether no target was missed."""
    return all(row.met is not False for row in rows)


def shown(amount: float | str | None) -> str:
    """Return four significant digits, all digits of whole thousands, a text as it is."""
    if amount is None or isinstance(amount, str):
        return amount or "-"
    return f"{amount:,.0f}" if abs(amount) >= 1_000 else f"{amount:.4g}"


def word(met: bool | None) -> str:
    """Return yes, NO or - for no target."""
    return "-" if met is None else "yes" if met else "NO"
