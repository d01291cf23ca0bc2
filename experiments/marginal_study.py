"""Marginal study: what `marginal` gains over Block, Astrolabe and dispatchers without lengths, by length error.

    python -m servegym.experiments.marginal_study --workers 2
    python -m servegym.experiments.marginal_study --seeds 2 --requests 1000 --workloads azure-conv --loads 1

Two workloads, two scenarios, three loads, 4 instances. Predictions: true (error 0), times clip(1 + N(0, s), .1, 5), or
none; remaining lengths plug-in or residual, which are the same under true predictions. All systems play the same traces
within a seed. What was played is kept in a file and not played again; the tables are printed as Markdown.
Source: ours; it asks whether a newcomer should pay for those it delays, and what is left of it
without true lengths. Left out: Astrolabe's errors drawn anew for every instance.
"""

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd
import tyro

from servegym.experiments.blocks import check_seeds
from servegym.experiments.compare import compare
from servegym.experiments.marginal_tables import MEAN, SHOWN, SYSTEMS, report
from servegym.experiments.progress import announce_compilation
from servegym.simulator.kernel import SIMULATOR_HASH


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


def play(cell: Cell) -> pd.DataFrame:
    """Return one row a system: the cell, the engine's hash, the system and its measures."""
    runs = compare(
        SYSTEMS,
        workload=cell.workload,
        load=cell.load,
        scenario=cell.scenario,
        seeds=1,
        seed=cell.seed,
        n_requests=cell.requests,
        progress=False,
    ).runs.filter(["system", MEAN, *SHOWN])
    return runs.assign(**cell._asdict(), engine=SIMULATOR_HASH)


def kept_runs(path: Path) -> pd.DataFrame:
    """Return the rows of the file that this engine made; none without a file."""
    if not path.exists():
        return pd.DataFrame(columns=["system", MEAN, *SHOWN, *Cell._fields, "engine"])
    return pd.read_csv(path, dtype={"engine": str}).query("engine == @SIMULATOR_HASH")


def cells_of(runs: pd.DataFrame) -> set[Cell]:
    """Return the cells that all systems have played."""
    names = [*Cell._fields, "system"]
    rows = runs.filter(names).drop_duplicates().itertuples(index=False, name=None)
    counts = Counter(Cell(*row[:-1]) for row in rows)
    return {cell for cell, count in counts.items() if count == len(SYSTEMS)}


def play_all(cells: Sequence[Cell], workers: int) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield every cell with its runs, as they finish."""
    if workers == 1:
        for cell in cells:
            yield cell, play(cell)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would share the compiler's state
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        started = {pool.submit(play, cell): cell for cell in cells}
        for future in as_completed(started):
            yield started[future], future.result()


def play_missing(options: Options) -> pd.DataFrame:
    """Play what the file lacks, keep each cell as soon as it is done, and return the runs of all cells."""
    cells, done = options.cells(), cells_of(kept_runs(options.out))
    missing = [cell for cell in cells if cell not in done]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if missing:
        announce_compilation()
    start_s = time.monotonic()
    for count, (cell, runs) in enumerate(play_all(missing, options.workers), 1):
        is_new = not options.out.exists()
        with options.out.open("a", encoding="utf-8") as file:
            file.write(runs.to_csv(index=False, header=is_new))  # in one piece
        spent_s = time.monotonic() - start_s
        left_s = spent_s / count * (len(missing) - count)
        print(
            f"{count}/{len(missing)} cells, {spent_s:.0f} s, about {left_s:.0f} s left: {cell}",
            file=sys.stderr,
            flush=True,
        )
    kept = kept_runs(options.out).drop_duplicates([*Cell._fields, "system"])
    keys = pd.MultiIndex.from_frame(kept.filter(Cell._fields))
    return kept.loc[keys.isin(cells), :]


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is missing and print the tables."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    print(report(play_missing(options)))


if __name__ == "__main__":
    main()
