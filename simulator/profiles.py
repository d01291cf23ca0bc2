"""The table of iteration-time fits: one row per device, model and tensor parallelism.

Facts with their sources, fit errors and fitted ranges in profiles.csv; the formula is in iteration_time.py. All rows
are 2 bytes a value for weights and KV. Rows marked as datasheet estimates were never measured.
"""

import csv
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files

from servegym.traces.names import near_match

PROFILE_BLOCK_SIZE = 16  # tokens in a block of kv_blocks_default


@dataclass(frozen=True)
class Profile:
    """One row of profiles.csv; `*_ms` are milliseconds, an empty cell is None."""

    device: str
    model: str
    tensor_parallel: int
    knee_tokens: int
    c0_ms: float
    c_token_ms: float
    c_above_knee_ms: float
    c_decode_step_ms: float
    c_seq_ms: float
    c_kv_ms: float
    c_prefill_step_ms: float
    c_prefill_attention_ms: float
    fit_mape_pct: float | None
    max_prefill_tokens: int | None  # the fitted range: tokens prefilled in one iteration
    max_kv_tokens: int | None  # and context read by its decodes
    kv_blocks_default: int
    calibration: float
    source: str
    licence: str
    note: str

    @property
    def name(self) -> str:
        """device/model/tpN, the key that configs use."""
        return f"{self.device}/{self.model}/tp{self.tensor_parallel}"

    def kv_blocks(self, block_size: int) -> int:
        """Return the default KV blocks of that many tokens."""
        return self.kv_blocks_default * PROFILE_BLOCK_SIZE // block_size


def _parse(row: dict[str, str]) -> Profile:
    kinds = {f.name: str(f.type) for f in fields(Profile)}
    values: dict[str, object] = {}
    for name, kind in kinds.items():
        cell = row[name]
        if cell == "" and "None" in kind:
            values[name] = None
        else:
            values[name] = int(cell) if "int" in kind else float(cell) if "float" in kind else cell
    return Profile(**values)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=1)
def profiles() -> dict[str, Profile]:
    """Return all rows by name."""
    text = files("servegym.simulator").joinpath("profiles.csv").read_text(encoding="utf-8")
    rows = [_parse(row) for row in csv.DictReader(text.splitlines())]
    return {row.name: row for row in rows}


def find_profile(name: str) -> Profile:
    """Return the row of that name; ValueError with the near match when there is none."""
    table = profiles()
    if name not in table:
        raise ValueError(f"unknown profile {name!r}; {near_match(name, table)}")
    return table[name]
