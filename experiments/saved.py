"""Saved comparisons: read one back, and merge those that played the same traces.

A system added later need not be run beside the old ones again: the traces are the same, by their hashes, so the
differences within each seed are paired all the same.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from servegym.experiments.comparison import MANIFEST, RUNS, Comparison
from servegym.simulator.config import ClusterConfig

SAME = ("workload", "config", "horizon_s", "seeds", "workload_hashes")


def load_comparison(folder: str | Path) -> Comparison:
    """Read what Comparison.save wrote; ValueError if a part is missing or is not a comparison's."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return Comparison(
            runs=pd.read_parquet(folder / RUNS),
            reference=manifest["reference"],
            workload=manifest["workload"],
            config=ClusterConfig(**manifest["config"]),
            load=manifest["load"],
            rate_per_s=manifest["rate_per_s"],
            saturation_per_s=manifest["saturation_per_s"],
            horizon_s=manifest["horizon_s"],
            notes=tuple(manifest["notes"]),
            command=manifest["command"],
            resolved=manifest["resolved"],
        )
    except FileNotFoundError as error:
        raise ValueError(f"{folder} is no saved comparison: {error.filename} is missing") from None
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / MANIFEST} is no manifest of a comparison: {error}") from None


def merge(comparisons: Sequence[Comparison], reference: str | None = None) -> Comparison:
    """Return one comparison of all their systems; differences are taken to `reference` (the first's).

    A system that several of them ran is taken from the first. ValueError unless all played the same traces on
    the same cluster; it names what differs.
    """
    if not comparisons:
        raise ValueError("comparisons = []; give at least one")
    first = comparisons[0]
    for other in comparisons[1:]:
        for name in SAME:
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"comparisons differ in {name}: {mine!r} and {theirs!r}")
    runs = pd.concat([each.runs for each in comparisons], ignore_index=True)
    runs = runs.drop_duplicates(["system", "seed"], ignore_index=True)
    names = list(dict.fromkeys(runs["system"].tolist()))
    if reference is not None and reference not in names:
        raise ValueError(f"reference = {reference!r}; must be one of {', '.join(names)}")
    resolved = {
        name: made for each in reversed(comparisons) for name, made in each.resolved.items()
    }
    notes = dict.fromkeys(note for each in comparisons for note in each.notes)
    return replace(
        first,
        runs=runs,
        reference=reference or first.reference,
        notes=tuple(notes),
        command=None,
        resolved=resolved,
    )
