"""The check: every system on every workload at every load, and requests conserved in each run.

Every cell is tried, whatever failed before it. A group is one workload at one load; what it gave is kept as counts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servegym.baselines.offered_rate import Source
from servegym.baselines.saturation import saturation_rate
from servegym.baselines.systems import System
from servegym.experiments.grid import COUNTERS, STATUSES, Cell, CellError, play_cell
from servegym.experiments.sources import at_rate, traces_by_seed, with_tiers
from servegym.simulator.config import ClusterConfig

LOADS = (0.6, 0.85, 1.0, 1.15)  # relaxed, busy, the limit, overload
REQUESTS = 2_000  # a cell: enough to queue, hold, move and preempt, few enough for all systems and workloads in minutes
COUNTED = ("offered", *STATUSES, "preemptions", *COUNTERS)


@dataclass(frozen=True)
class Group:
    """All cells of one workload at one load. counts: by system, summed over seeds; failures: one line each."""

    workload: str
    load: float
    n_cells: int
    counts: Mapping[str, Mapping[str, int]]
    failures: tuple[str, ...]

    def __str__(self) -> str:
        """One line: where, how much, and whether all is well."""
        offered = sum(counts["offered"] for counts in self.counts.values())
        told = f"{len(self.failures)} FAILED: {self.failures[0]}" if self.failures else "ok"
        return f"{self.workload:<25}  load {self.load:<5g} {self.n_cells:>4} runs  {offered:>9,} requests  {told}"


@dataclass
class Check:
    """The groups of a check so far."""

    groups: list[Group] = field(default_factory=list)

    @property
    def n_cells(self) -> int:
        """The runs that were tried."""
        return sum(group.n_cells for group in self.groups)

    @property
    def failures(self) -> list[str]:
        """What went wrong, one line a run."""
        return [failure for group in self.groups for failure in group.failures]

    def counts(self) -> dict[str, Counter[str]]:
        """Return the counts of every system, summed over all its runs."""
        found: dict[str, Counter[str]] = {}
        for group in self.groups:
            for system, counts in group.counts.items():
                found.setdefault(system, Counter()).update(counts)
        return found

    def verdict(self) -> str:
        """Return the last line: how many runs, and whether each is conserved."""
        offered = sum(counts["offered"] for counts in self.counts().values())
        if self.failures:
            return f"{len(self.failures)} of {self.n_cells:,} runs FAILED"
        return f"{self.n_cells:,} runs of {offered:,} requests: all conserved"

    def table(self) -> str:
        """Return one line a system: its counts over all runs, columns without any left out."""
        counts = self.counts()
        columns = [name for name in COUNTED if any(row[name] for row in counts.values())]
        titles = [name.replace("_", " ") for name in columns]
        width = max((len(name) for name in counts), default=0)
        lines = [" ".join([f"{'':<{width}}", *(f"{title:>{wide(title)}}" for title in titles)])]
        for system, row in counts.items():
            cells = [f"{row[c]:>{wide(t)},}" for c, t in zip(columns, titles, strict=True)]
            lines.append(" ".join([f"{system:<{width}}", *cells]))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "verdict": self.verdict(),
            "runs": self.n_cells,
            "failures": self.failures,
            "systems": {system: dict(row) for system, row in self.counts().items()},
            "groups": [
                {"workload": group.workload, "load": group.load, "runs": group.n_cells}
                | {"failures": list(group.failures), "systems": dict(group.counts)}
                for group in self.groups
            ],
        }


def wide(title: str) -> int:
    """Return the width of a column under that title."""
    return max(len(title), 10)


def check_groups(
    systems: Mapping[str, System],
    sources: Sequence[Source],
    loads: Sequence[float],
    config: ClusterConfig,
    seeds: int = 1,
    n_requests: int = REQUESTS,
    seed: int = 0,
    arrivals: str | None = None,
    tier_mix: str | None = None,
    horizon_s: float | None = None,
) -> Iterator[Group]:
    """Play and yield every workload at every load, one group after the other.

    ValueError for a source that has no such blocks or arrivals; whatever a run raises becomes a failure of its group.
    """
    for source in sources:
        recorded = traces_by_seed(source, seeds, n_requests, False, seed, arrivals)
        recorded = with_tiers(recorded, tier_mix, config.tiers)
        saturation_per_s = saturation_rate(source, config)
        for load in loads:
            traces = at_rate(recorded, source, load, None, saturation_per_s)
            cells, failures = [], []
            for system in systems.values():
                for s, trace in traces.items():
                    try:
                        cells.append(play_cell(system, s, trace, config, horizon_s))
                    except (CellError, ValueError) as error:
                        failures.append(f"{source.name}, load {load:g}, {error}")
            n_cells = len(systems) * len(traces)
            yield Group(source.name, load, n_cells, counts_of(systems, cells), tuple(failures))


def counts_of(systems: Mapping[str, System], cells: Sequence[Cell]) -> dict[str, dict[str, int]]:
    """Return what is counted of each system, summed over its cells."""
    return {
        name: {
            key: sum(int(cell.row[key]) for cell in cells if cell.row["system"] == name)
            for key in COUNTED
        }
        for name in systems
    }
