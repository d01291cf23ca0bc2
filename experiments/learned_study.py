"""Learned study: what learned dispatchers gain over every dispatch system that knows as much.

    python -m servegym.experiments.learned_study --learned dispatch-mean-e2e --workers 2
    python -m servegym.experiments.learned_study --learned a.safetensors b.safetensors --seeds 2 --instances 4
    python -m servegym.experiments.learned_study --trace AzureLLMInferenceTrace_conv.csv

Drawn workloads, and blocks of a trace file, in two scenarios, at three loads, on fleets of 4 to 64 instances. Of output
lengths the systems know a prediction (clip(1 + N(0, .5), .1, 5) times the truth), or nothing but the completions so
far. What-if systems take remaining lengths plug-in and residual. All systems play the same traces within a seed, seeds
that no training uses (agents/scenarios.py). Source: ours; docs/learned.md has the tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import tyro

from servegym.experiments.blocks import blocks_of_file, check_seeds
from servegym.experiments.compare import compare
from servegym.experiments.kept_runs import kept_runs, play_missing, runs_of
from servegym.experiments.learned_tables import (
    KEYS,
    PREDICTED,
    TOLD,
    UNKNOWN,
    WHAT_IF,
    WITHOUT_LENGTHS,
    learned_system,
    report,
    rivals,
)
from servegym.traces.load import load
from servegym.traces.names import near_match

PLAYING = (*WITHOUT_LENGTHS, *WHAT_IF)
BLOCKS = 10  # of a trace file
# Fleets from that size on play so many times the requests: their runs are the shortest.
LARGE, MORE = 64, 2


class Cell(NamedTuple):
    """What all systems play together. seeds: from `seed` on; all blocks of a trace file, else one."""

    workload: str
    scenario: str
    instances: int
    load: float
    length: str
    seed: int
    seeds: int
    requests: int


@dataclass(kw_only=True)
class Options:
    """What to play."""

    learned: tuple[str, ...] = ()
    """Learned dispatchers: shipped names or files; none: their rivals play alone."""
    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many seeds, from 0 on."""
    requests: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """Requests a seed of a drawn workload; fleets of 64 play twice as many."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Processes."""
    out: Path = Path("out/learned_study.csv")
    """Where finished cells are kept; those found there are not played again."""
    trace: Path | None = None
    """A trace file, played in ten blocks; none: drawn workloads only."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Drawn workloads by name; none: the trace file alone."""
    scenarios: tuple[str, ...] = ("tight", "default")
    """Scenarios by name."""
    instances: tuple[int, ...] = (4, 8, 16, 64)
    """Fleet sizes."""
    loads: tuple[float, ...] = (0.9, 0.97, 1.03)
    """Arrivals as a fraction of what the cluster sustains."""
    lengths: tuple[str, ...] = (PREDICTED, UNKNOWN)
    """What is known of output lengths."""
    left_out: tuple[str, ...] = ()
    """Policies that do not play, as marginal and block on large fleets, where they take hours."""
    as_kept: bool = False
    """Play nothing more; print the tables of what the file has."""

    def cells(self) -> dict[Cell, list[str]]:
        """Return the systems that play in every cell, seed by seed; ValueError for options that cannot be."""
        check_seeds(self.seeds, 0)
        for length in self.lengths:
            if length not in TOLD:
                raise ValueError(f"lengths = {length!r}; must be of {', '.join(map(repr, TOLD))}")
        for name in self.left_out:
            if name not in PLAYING:
                raise ValueError(f"left_out = {name!r}; {near_match(name, PLAYING)}")
        if not self.workloads and self.trace is None:
            raise ValueError("workloads = (); name one, or a --trace")
        return {cell: self.systems(cell.length) for cell in self._cells()}

    def _cells(self) -> Iterator[Cell]:
        for seed in range(self.seeds):
            for place in self._places(self.workloads):
                yield Cell(*place, seed, 1, self.requests * (MORE if place[2] >= LARGE else 1))
            if seed == 0 and self.trace is not None:
                for place in self._places([str(self.trace)]):
                    yield Cell(*place, 0, BLOCKS, 0)

    def _places(self, workloads: Sequence[str]) -> list[tuple[str, str, int, float, str]]:
        return [
            (workload, scenario, instances, load, length)
            for instances in self.instances
            for workload in workloads
            for scenario in self.scenarios
            for load in self.loads
            for length in self.lengths
        ]

    def systems(self, length: str) -> list[str]:
        """Return the systems that play where so much is known of lengths."""
        learned = [learned_system(file, length) for file in self.learned]
        chosen = [
            each for each in rivals(length).values() if each.partition(":")[0] not in self.left_out
        ]
        return [*chosen, *learned]


def play(cell: Cell, systems: Sequence[str]) -> pd.DataFrame:
    """Return one row a system and seed: their measures."""
    is_file = cell.seeds > 1
    source: dict[str, Any] = {"trace": cell.workload} if is_file else {"workload": cell.workload}
    runs = compare(
        systems,
        **source,
        load=cell.load,
        scenario=cell.scenario,
        instances=cell.instances,
        seeds=cell.seeds,
        seed=cell.seed,
        n_requests=cell.requests,
        progress=False,
    ).runs
    return runs.filter(["system", "seed", *KEYS]).rename(columns={"seed": "played_seed"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is missing and print the tables."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    cells = options.cells()
    if options.as_kept:
        kept = kept_runs(options.out)
        if kept.empty:
            raise ValueError(f"--as-kept: {options.out} has no runs of this version")
        runs = runs_of(cells, kept)
    else:
        if options.trace is not None:
            # Its turn comes late: say now what is wrong with it.
            blocks_of_file(load(options.trace), BLOCKS)
        runs = play_missing(cells, play, options.out, options.workers)
    if options.learned or options.as_kept:
        print(report(runs, options.learned))


if __name__ == "__main__":
    main()
