"""Checks of trace columns that name the field, the value and the row at fault.

Everything a trace holds passes here once, whether it comes from a file or from arrays, so the
simulator can trust it: `prompt_tokens[17] = 0; must be >= 1 (row 19 of trace.csv)`.
Engine time is int64 picoseconds, hence the limit of 106 days on arrivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_ARRIVAL_S = 106 * 86_400.0
MAX_TOKENS = np.iinfo(np.int32).max
MAX_TIER = np.iinfo(np.int16).max
NARROW_CODES = MAX_TIER + 1
MOST_SHOWN = 80
NUMBER_KINDS, TEXT_KINDS = "iuf", "OUST"
NESTED = (list, tuple, np.ndarray)
NO_REAL_NUMBERS = (bool, np.bool_, np.timedelta64, np.datetime64, complex, np.complexfloating)


@dataclass(frozen=True, eq=False)
class Where:
    """The place of each value of a column: its index among all values, and its row in a file.

    rows: the file's row numbers, one a value. first: index of the column's first value, above 0
    when a file is read in chunks. Without a file there is nothing to add to an index.
    """

    file: str = ""
    rows: Sequence[int] | NDArray[np.int64] = ()
    first: int = 0

    def __call__(self, index: int) -> str:
        """Name the file row of the value at an index of this column."""
        return f" (row {self.rows[index]} of {self.file})" if self.file else ""


nowhere = Where()


def rows_of(file: str, rows: Sequence[int] | NDArray[np.int64], first: int = 0) -> Where:
    """Return the places of a column that was read from these rows of a file."""
    return Where(file, rows, first)


def refuse(field: str, index: int, value: object, rule: str, where: Where = nowhere) -> NoReturn:
    """Raise the ValueError that all checks share."""
    shown = value.item() if isinstance(value, np.generic) else value
    if isinstance(shown, float) and shown.is_integer():
        shown = int(shown)
    raise ValueError(f"{field}[{where.first + index}] = {quoted(shown)}; {rule}{where(index)}")


def quoted(value: object) -> str:
    """Return a value as a message shows it: its repr, cut to MOST_SHOWN characters."""
    try:
        return cut(repr(value))
    except ValueError:
        return "an integer too long to print"


def cut(text: str) -> str:
    """Return a text, cut to MOST_SHOWN characters."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def require(
    ok: NDArray[np.bool_], field: str, values: NDArray[Any], rule: str, where: Where
) -> None:
    """Refuse the first value whose `ok` is false."""
    if not ok.all():
        index = int(np.argmin(ok))
        refuse(field, index, values[index], rule, where)


def to_numbers(field: str, values: ArrayLike, where: Where = nowhere) -> NDArray[Any]:
    """Return a 1-D numeric array; ValueError names the first value that is missing or no number.

    Texts are read as Python reads floats (correctly rounded). Truth values, durations, dates and
    complex numbers are refused: as a float, each would be read in the wrong unit or lose a part.
    """
    refuse_masked(field, values, where)
    if isinstance(values, (list, tuple)):
        refuse_no_real_numbers(field, values, where)
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{field} has shape {array.shape}; must be one-dimensional")
    if array.dtype.kind in NUMBER_KINDS:
        return array
    if array.dtype.kind not in TEXT_KINDS:
        place = where(0) if len(array) else ""
        raise ValueError(f"{field} has values of type {array.dtype}; must be numbers{place}")
    if array.dtype.kind == "O":
        refuse_no_real_numbers(field, array.tolist(), where)
    try:
        numbers = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or np.isnan(numbers).any():
        for index, value in enumerate(array.tolist()):
            refuse_unless_number(field, index, value, where)
    if numbers is None:
        raise ValueError(f"{field} has values of type {array.dtype}; must be numbers")
    return numbers


def refuse_masked(field: str, values: ArrayLike, where: Where) -> None:
    """Refuse the first value that a masked array hides: numpy would read what is under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(values)
        if hidden.ndim == 1 and hidden.any():
            refuse_missing(field, int(np.argmax(hidden)), where)


def refuse_no_real_numbers(field: str, values: Sequence[Any], where: Where) -> None:
    """Refuse the first value of a type that numpy converts although it is no real number.

    Lists within a list are refused too, unless the whole is a table, which has a shape to name.
    """
    types = set(map(type, values))
    is_table = not where.file and types <= set(NESTED) and len(set(map(np.shape, values))) == 1
    refused = NO_REAL_NUMBERS if is_table else (*NO_REAL_NUMBERS, *NESTED)
    if not any(issubclass(found, refused) for found in types):
        return
    for index, value in enumerate(values):
        if isinstance(value, refused):
            refuse(field, index, value, f"must be a number, not {type(value).__name__}", where)


def refuse_missing(field: str, index: int, where: Where = nowhere) -> NoReturn:
    """Raise the ValueError for a value that is not there."""
    raise ValueError(f"{field}[{where.first + index}] is missing{where(index)}")


def refuse_unless_number(field: str, index: int, value: Any, where: Where) -> None:
    """Refuse one value that is missing or cannot be read as a number."""
    if value is None or (isinstance(value, str) and value == ""):
        refuse_missing(field, index, where)
    try:
        float(value)
    except OverflowError:
        refuse(field, index, value, "must be a number that a float can hold", where)
    except (TypeError, ValueError):
        refuse(field, index, value, "must be a number", where)


def check_arrivals(values: ArrayLike, where: Where = nowhere) -> NDArray[np.float64]:
    """Return arrival times in s as float64[n]: finite, 0 <= t <= 106 days, non-decreasing.

    Raises ValueError naming the first row that is not.
    """
    times = to_numbers("arrival_s", values, where).astype(np.float64)
    if not are_arrivals(times):
        check_times(times, where)
        check_order(times, where)
    return times


def are_arrivals(times: NDArray[np.float64]) -> bool:
    """Return whether times (s) are all sound, in one comparison a row: no order holds with a NaN."""
    if not len(times):
        return True
    is_in_order = bool((times[1:] >= times[:-1]).all())
    return is_in_order and bool(times[0] >= 0.0) and bool(times[-1] <= MAX_ARRIVAL_S)


def check_order(
    times: NDArray[np.float64], where: Where = nowhere, last_s: float = -np.inf
) -> None:
    """Refuse the first time (s) before the one above it; last_s: the time above the first."""
    later = np.diff(times, prepend=last_s) >= 0.0
    rule = "must not be before the arrival above it; sort=True sorts by arrival"
    require(later, "arrival_s", times, rule, where)


def check_times(values: ArrayLike, where: Where = nowhere) -> NDArray[np.float64]:
    """Return times in s as float64[n] in any order: finite, 0 <= t <= 106 days, else ValueError."""
    times = to_numbers("arrival_s", values, where).astype(np.float64)
    require(np.isfinite(times), "arrival_s", times, "must be a finite number", where)
    require(times >= 0.0, "arrival_s", times, "must be >= 0", where)
    check_engine_range(times, where)
    return times


def check_engine_range(times: NDArray[np.float64], where: Where = nowhere) -> None:
    """Refuse the first time (s) that the engine's clock cannot hold."""
    why = "engine time is int64 picoseconds; start_s and end_s load a part"
    rule = f"must be <= {MAX_ARRIVAL_S:,.0f} s (106 days): {why}"
    require(times <= MAX_ARRIVAL_S, "arrival_s", times, rule, where)


def check_tokens(
    field: str, values: ArrayLike, least: int = 1, where: Where = nowhere
) -> NDArray[np.int32]:
    """Return token counts as int32[n], whole numbers >= least; ValueError names the first other."""
    return check_integers(field, values, least, MAX_TOKENS, where).astype(np.int32)


def check_tiers(values: ArrayLike, where: Where = nowhere) -> NDArray[np.int16]:
    """Return tiers as int16[n], whole numbers >= 0; ValueError names the first other."""
    return check_integers("tier", values, 0, MAX_TIER, where).astype(np.int16)


def check_codes(
    field: str, values: ArrayLike, n_codes: int
) -> NDArray[np.int16] | NDArray[np.int32]:
    """Return label codes in [0, n_codes); ValueError names the first other.

    int16 up to 32,768 labels, else int32.
    """
    codes = check_integers(field, values, 0, n_codes - 1, nowhere)
    return codes.astype(np.int16) if n_codes <= NARROW_CODES else codes.astype(np.int32)


def check_integers(
    field: str, values: ArrayLike, least: int, most: int, where: Where
) -> NDArray[Any]:
    """Return whole numbers in [least, most], still in their own dtype, else ValueError."""
    numbers = to_numbers(field, values, where)
    if numbers.dtype.kind == "f":
        require(np.isfinite(numbers), field, numbers, "must be a finite number", where)
        whole = numbers == np.floor(numbers)
        require(whole, field, numbers, "must be a whole number", where)
    require(numbers >= least, field, numbers, f"must be >= {least}", where)
    require(numbers <= most, field, numbers, f"must be <= {most:,}", where)
    return numbers


def frozen(column: NDArray[Any]) -> NDArray[Any]:
    """Return a checked column (always a copy of the caller's) made read-only in place."""
    column.setflags(write=False)
    return column
