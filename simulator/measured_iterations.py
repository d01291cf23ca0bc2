"""Measured iterations of an engine, the input of a calibration: one row an iteration, read from a CSV by header name.

Columns: prefill_tokens P, decode_seqs B, kv_tokens (or decode_ctx, their mean context: KV = B * decode_ctx),
prefill_attn PA (or prefix_tokens, when no iteration has chunks of two prompts: PA = P * (prefix + (P + 1) / 2)),
t_ms. KV and PA are those of iteration_time.py. Other columns are ignored; a bad cell is a ValueError with its row.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.table import open_text, read_table
from servegym.traces.validation import (
    MAX_TOKENS,
    Where,
    check_integers,
    nowhere,
    require,
    rows_of,
    to_numbers,
)

Floats = NDArray[np.float64]
KINDS = ("decode", "prefill", "mixed")
# Each needs one of its columns; the first one there is read.
COLUMNS: dict[str, tuple[str, ...]] = {
    "prefill_tokens": ("prefill_tokens",),
    "decode_seqs": ("decode_seqs",),
    "kv_tokens": ("kv_tokens", "decode_ctx"),
    "prefill_attn": ("prefill_attn", "prefix_tokens"),
    "t_ms": ("t_ms",),
}
PROMPTS = "n_prefill"  # prompts with a chunk in the iteration, where the file says


@dataclass(frozen=True)
class MeasuredIterations:
    """Columns float64[n], one element an iteration."""

    prefill_tokens: Floats
    decode_seqs: Floats
    kv_tokens: Floats
    prefill_attention: Floats
    t_ms: Floats

    def __len__(self) -> int:
        """Return the number of iterations."""
        return len(self.t_ms)

    @property
    def tokens(self) -> Floats:
        """Tokens computed: T = P + B."""
        return self.prefill_tokens + self.decode_seqs

    @property
    def kinds(self) -> NDArray[np.str_]:
        """decode, prefill or mixed, for each."""
        has_prefill, has_decode = self.prefill_tokens > 0, self.decode_seqs > 0
        return np.where(
            has_prefill & has_decode, "mixed", np.where(has_decode, "decode", "prefill")
        )

    @property
    def batches(self) -> NDArray[np.int64]:
        """A number for each that iterations of the same composition share, 0 to their count - 1."""
        columns = (self.prefill_tokens, self.decode_seqs, self.kv_tokens, self.prefill_attention)
        return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)

    def take(self, chosen: NDArray[Any]) -> "MeasuredIterations":
        """Return those chosen by a mask or by indices."""
        return MeasuredIterations(*(column[chosen] for column in vars(self).values()))


def read_iterations(path: str | Path) -> MeasuredIterations:
    """Read a CSV (gzip or not); ValueError lists all missing columns, or names the first bad cell."""
    path = Path(path)
    try:
        with open_text(path) as text:
            table = read_table(text, path.name)
            named = [
                next((c for c in choice if c in table.header), "") for choice in COLUMNS.values()
            ]
            missing = [
                " or ".join(c) for c, n in zip(COLUMNS.values(), named, strict=True) if not n
            ]
            if missing:
                raise ValueError(f"{path.name} has no column {', '.join(missing)}")
            optional = [PROMPTS] if PROMPTS in table.header else []
            rows, columns = table.read(named + optional, None)
    except (UnicodeDecodeError, EOFError, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    return check_iterations(columns, rows_of(path.name, rows))


def check_iterations(
    columns: Mapping[str, ArrayLike], where: Where = nowhere
) -> MeasuredIterations:
    """Return checked iterations of columns by name (of COLUMNS); ValueError names value and row."""
    prefill_tokens = whole_numbers("prefill_tokens", columns, where)
    decode_seqs = whole_numbers("decode_seqs", columns, where)
    is_at_work = prefill_tokens + decode_seqs > 0
    rule = "must be > 0 where decode_seqs is 0: the iteration computes nothing"
    require(is_at_work, "prefill_tokens", prefill_tokens, rule, where)
    t_ms = to_numbers("t_ms", columns["t_ms"], where).astype(np.float64)
    require(np.isfinite(t_ms) & (t_ms > 0), "t_ms", t_ms, "must be finite and > 0", where)
    kv_tokens = find_kv_tokens(columns, decode_seqs, where)
    attention = find_attention(columns, prefill_tokens, where)
    return MeasuredIterations(prefill_tokens, decode_seqs, kv_tokens, attention, t_ms)


def find_kv_tokens(columns: Mapping[str, ArrayLike], decode_seqs: Floats, where: Where) -> Floats:
    """Return KV: as given, at least a token a decode and none without, or B * their mean context."""
    if "kv_tokens" in columns:
        kv_tokens = whole_numbers("kv_tokens", columns, where)
        rule = "must be >= decode_seqs: each decode reads at least its own token"
        require(kv_tokens >= decode_seqs, "kv_tokens", kv_tokens, rule, where)
        is_read = (kv_tokens == 0) | (decode_seqs > 0)
        require(is_read, "kv_tokens", kv_tokens, "must be 0 where decode_seqs is 0", where)
        return kv_tokens
    context = finite_numbers("decode_ctx", columns, where)
    is_real = (decode_seqs == 0) | (context >= 1)
    require(is_real, "decode_ctx", context, "must be >= 1 where something decodes", where)
    return decode_seqs * context


def find_attention(
    columns: Mapping[str, ArrayLike], prefill_tokens: Floats, where: Where
) -> Floats:
    """Return PA: as given, at least P and 0 without prefill, or that of one prompt after its prefix."""
    if "prefill_attn" in columns:
        attention = finite_numbers("prefill_attn", columns, where)
        rule = "must be >= prefill_tokens: each attends at least to itself"
        require(attention >= prefill_tokens, "prefill_attn", attention, rule, where)
        is_due = (attention == 0) | (prefill_tokens > 0)
        require(is_due, "prefill_attn", attention, "must be 0 where prefill_tokens is 0", where)
        return attention
    if PROMPTS in columns:
        n_prompts = whole_numbers(PROMPTS, columns, where)
        rule = "must be <= 1 with prefix_tokens; for several prompts give prefill_attn"
        require(n_prompts <= 1, PROMPTS, n_prompts, rule, where)
    prefix = whole_numbers("prefix_tokens", columns, where)
    return prefill_tokens * (prefix + (prefill_tokens + 1) / 2)


def whole_numbers(name: str, columns: Mapping[str, ArrayLike], where: Where) -> Floats:
    """Return a column of whole numbers >= 0."""
    return check_integers(name, columns[name], 0, MAX_TOKENS, where).astype(np.float64)


def finite_numbers(name: str, columns: Mapping[str, ArrayLike], where: Where) -> Floats:
    """Return a column of finite numbers >= 0."""
    numbers = to_numbers(name, columns[name], where).astype(np.float64)
    require(np.isfinite(numbers) & (numbers >= 0), name, numbers, "must be finite and >= 0", where)
    return numbers
