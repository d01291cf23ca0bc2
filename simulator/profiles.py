"""The table of iteration-time fits: one row per device, model and tensor parallelism.

Facts with their sources, fit errors and fitted ranges in profiles.csv; the formula is in iteration_time.py. All rows
are 2 bytes a value for weights and KV. Rows marked as datasheet estimates were never measured. A user's own fit is a
JSON file, named by its path.
"""

import csv
from dataclasses import fields
from functools import lru_cache
from importlib.resources import files

from servegym.simulator.profile import SUFFIX, Profile, read_profile
from servegym.traces.names import near_match

__all__ = ["Profile", "find_profile", "profiles"]


def _parse(row: dict[str, str]) -> Profile:
    values: dict[str, object] = {}
    for name, kind in ((f.name, str(f.type)) for f in fields(Profile)):
        cell = row[name]
        if cell == "" and "None" in kind:
            values[name] = None
        else:
            values[name] = int(cell) if "int" in kind else float(cell) if "float" in kind else cell
    return Profile.from_mapping(values)


@lru_cache(maxsize=1)
def profiles() -> dict[str, Profile]:
    """Return all rows by name."""
    text = files("servegym.simulator").joinpath("profiles.csv").read_text(encoding="utf-8")
    rows = [_parse(row) for row in csv.DictReader(text.splitlines())]
    return {row.name: row for row in rows}


def find_profile(name: str) -> Profile:
    """Return the row of that name, or the profile of that .json file, read anew.

    ValueError with the near match when there is no such row, or with what is wrong with the file.
    """
    if name.endswith(SUFFIX):
        return read_profile(name)
    table = profiles()
    if name not in table:
        raise ValueError(f"unknown profile {name!r}; {near_match(name, table)}")
    return table[name]
