"""Marginal study: what `marginal` gains over Block, Astrolabe and dispatchers without lengths, by length error.

    python -m servegym.experiments.marginal_study --workers 2
    python -m servegym.experiments.marginal_study --seeds 2 --requests 1000 --workloads azure-conv --loads 1

Two workloads, two scenarios, three loads, 4 instances. Predictions: true (error 0), times clip(1 + N(0, s), .1, 5), or
none; remaining lengths plug-in or residual, which are the same under true predictions. All systems play the same traces
within a seed. What was played is kept in a file and not played again; the tables are printed as Markdown.
Source: ours; it asks whether a newcomer should pay for those it delays, and what is left of it
without true lengths. Left out: Astrolabe's errors drawn anew for every instance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd
import tyro

from servegym.experiments.blocks import check_seeds
from servegym.experiments.compare import compare
from servegym.experiments.kept_runs import play_missing
from servegym.experiments.marginal_tables import MEAN, SHOWN, SYSTEMS, report


class Cell(NamedTuple):
    """What all systems play together: one seed of a workload at a load of a cluster."""

    workload: str
    scenario: str
    load: float
    seed: int
    requests: int


@dataclass(kw_only=True)
class Options:
    """What to play; a cell is all systems on one seed's trace."""

    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many seeds, from 0 on."""
    requests: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """Requests a seed."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Processes."""
    out: Path = Path("out/marginal_study.csv")
    """Where finished cells are kept; those found there are not played again."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Workloads by name."""
    scenarios: tuple[str, ...] = ("default", "tight")
    """Scenarios by name."""
    loads: tuple[float, ...] = (0.9, 1.0, 1.1)
    """Arrivals as a fraction of what the cluster sustains."""

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed; ValueError below one seed."""
        check_seeds(self.seeds, 0)
        return [
            Cell(workload, scenario, load, seed, self.requests)
            for seed in range(self.seeds)
            for workload in self.workloads
            for scenario in self.scenarios
            for load in self.loads
        ]


def play(cell: Cell, systems: Sequence[str]) -> pd.DataFrame:
    """Return one row a system: its measures."""
    runs = compare(
        systems,
        workload=cell.workload,
        load=cell.load,
        scenario=cell.scenario,
        seeds=1,
        seed=cell.seed,
        n_requests=cell.requests,
        progress=False,
    ).runs
    return runs.filter(["system", MEAN, *SHOWN])


def play_options(options: Options) -> pd.DataFrame:
    """Play what the file lacks and return the runs of all cells."""
    cells = {cell: list(SYSTEMS) for cell in options.cells()}
    return play_missing(cells, play, options.out, options.workers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is missing and print the tables."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    print(report(play_options(options)))


if __name__ == "__main__":
    main()
