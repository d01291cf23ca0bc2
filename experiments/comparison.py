"""Comparison: the runs of some systems on the same traces, and what they show.

`table()` is the answer, `runs` the data behind it, `notes` what to know before believing it. `save`
writes runs.parquet, table.csv, comparison.png and manifest.json with the command to run it again.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from servegym.experiments.metrics import Line, comparison_lines, metrics_of, to_record
from servegym.experiments.run_text import engine_text
from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import SIMULATOR_HASH

if TYPE_CHECKING:
    import numpy as np

RUNS, TABLE, FIGURE, MANIFEST = "runs.parquet", "table.csv", "comparison.png", "manifest.json"
VERSIONED = ("servegym", "numpy", "numba", "pandas")
DOTS_PER_INCH = 150


@dataclass(frozen=True, eq=False)
class Comparison:
    """Systems compared over seeds.

    runs: one row per seed and system, with the columns of grid.flatten and grid.settings_of.
    reference: the system that differences are taken to. load: the one asked for, else mean rate
    over saturation, mean over seeds; rate_per_s likewise; None if all requests arrive at once.
    saturation_per_s: load 1.0, requests/s of the whole cluster. command: how to run it again; None
    if a system, trace or workload was given as an object. config: the user's; resolved: what each
    system made of it (System.manifest), by name.
    """

    runs: pd.DataFrame
    reference: str
    workload: str
    config: ClusterConfig
    load: float | None
    rate_per_s: float | None
    saturation_per_s: float
    horizon_s: float | None
    notes: tuple[str, ...]
    command: str | None
    resolved: Mapping[str, Mapping[str, Any]]

    @property
    def systems(self) -> list[str]:
        """The systems in the order they were named."""
        return list(dict.fromkeys(self.runs["system"].tolist()))

    @property
    def seeds(self) -> list[int]:
        """The seeds that every system played."""
        return list(dict.fromkeys(self.runs["seed"].tolist()))

    @cached_property
    def lines(self) -> list[Line]:
        """What is said about every metric and system (metrics.py)."""
        return comparison_lines(self.runs, self.reference, metrics_of(self.runs))

    def table(self) -> pd.DataFrame:
        """Return one row per metric and system: mean, interval, paired difference, verdict."""
        return pd.DataFrame([to_record(line) for line in self.lines])

    @property
    def title(self) -> str:
        """What was played on what; settings are named where they differ from the defaults."""
        profile = self.config.profile
        name = profile if isinstance(profile, str) else " + ".join(profile)
        offered = self.runs["offered"].tolist()
        low, high = min(offered), max(offered)
        requests = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        seeds = f"{len(self.seeds)} seeds of {requests}" if len(self.seeds) > 1 else requests
        rate = "all at once"
        if self.load is not None and self.rate_per_s is not None:
            rate = f"at load {self.load:.4g} = {self.rate_per_s:.4g} req/s"
        return (
            f"{self.workload}, {seeds} requests on {self.config.instances} x {name} "
            f"{engine_text(self.config)} {rate}"
        )

    def __str__(self) -> str:
        """The title, the table and the notes as text."""
        from io import StringIO

        from rich.console import Console

        from servegym.experiments.report import print_comparison

        text = StringIO()
        print_comparison(self, Console(file=text))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def print(self) -> None:
        """Print the same on stdout, with verdicts in colour on a terminal."""
        from rich.console import Console

        from servegym.experiments.report import print_comparison

        console = Console()
        if console.is_terminal:
            print_comparison(self, console)
        else:
            print(self)

    def plot(self) -> "np.ndarray":
        """Return the matplotlib axes of a new figure: latencies, and differences below (figure.py)."""
        from servegym.experiments.figure import draw

        return draw(self.lines, self.title)

    def to_dict(self) -> dict[str, Any]:
        """Return title, table and notes as plain values that JSON can hold; undefined numbers are None."""
        return {
            "title": self.title,
            "reference": self.reference,
            "table": [to_record(line) for line in self.lines],
            "notes": list(self.notes),
            "manifest": self.manifest(),
        }

    def manifest(self) -> dict[str, Any]:
        """Return everything needed to run it again, as plain values."""
        return {
            "command": self.command,
            "systems": self.systems,
            "resolved": {name: dict(self.resolved[name]) for name in self.systems},
            "reference": self.reference,
            "seeds": self.seeds,
            "workload": self.workload,
            "workload_hashes": self.workload_hashes,
            "config": self.config.model_dump(mode="json"),
            "profiles": [asdict(row) for row in self.config.fleet_profiles],
            "load": self.load,
            "rate_per_s": self.rate_per_s,
            "saturation_per_s": self.saturation_per_s,
            "horizon_s": self.horizon_s,
            "notes": list(self.notes),
            "engine_hash": SIMULATOR_HASH,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in VERSIONED},
        }

    @property
    def workload_hashes(self) -> dict[str, str]:
        """The hash of what each seed plays; one for all systems, checked."""
        hashes: dict[str, str] = {}
        for seed, digest in zip(self.runs["seed"], self.runs["workload_hash"], strict=True):
            known = hashes.setdefault(str(seed), str(digest))
            assert known == digest, f"systems played different traces under seed {seed}"
        return hashes

    def save(self, folder: str | Path) -> list[Path]:
        """Write the four files into a folder, made if need be; return their paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.runs.to_parquet(folder / RUNS, index=False)
        self.table().to_csv(folder / TABLE, index=False)
        self.plot()[0, 0].figure.savefig(folder / FIGURE, dpi=DOTS_PER_INCH)
        manifest = json.dumps(self.manifest(), indent=2, allow_nan=False)
        (folder / MANIFEST).write_text(manifest + "\n")
        return [folder / name for name in (RUNS, TABLE, FIGURE, MANIFEST)]
