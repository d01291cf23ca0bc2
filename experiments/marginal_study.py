"""Marginal study: what `marginal` gains over Block, Astrolabe and dispatchers without lengths, by length error.

    python -m servegym.experiments.marginal_study --workers 2
    python -m servegym.experiments.marginal_study --seeds 2 --requests 1000 --workloads azure-conv --scenarios tight --loads 1

Two workloads, two scenarios, three loads, 4 instances. Predictions: true (error 0), times clip(1 + N(0, s), .1, 5), or
none; remaining lengths plug-in or residual, which are the same under true predictions. All systems play the same traces
within a seed. What was played is kept in a file and not played again; the tables are printed as Markdown.
Source: DESIGN 3.7 and LEARNING 1 ask whether a newcomer should pay for those it delays, and what is left of it
without true lengths. Left out: Astrolabe's errors drawn anew for every instance.
"""

import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import tyro
from numpy.typing import NDArray

from servegym.experiments.compare import compare
from servegym.experiments.drift_arms import table
from servegym.experiments.progress import announce_compilation
from servegym.experiments.statistics import Interval, mean_interval, paired_difference
from servegym.simulator.config import SCENARIOS
from servegym.simulator.kernel import SIMULATOR_HASH

MARGINAL, *OTHERS = POLICIES = ("marginal", "block", "astrolabe")
WITHOUT_LENGTHS = ("least-requests", "llumnix-dispatch", "power-of-two")
ERRORS = (0.25, 0.5, 1.0)
REMAINING = ("plug-in", "residual")
NO_PREDICTION = {"plug-in": "constant", "residual": "residual"}  # learned from completions alone
# What the policies know, by (error, remaining) as the table says it: the text behind a system's colon.
KNOWN = (
    {("0", "either"): "estimator=oracle"}
    | {
        (f"{error:g}", how): f"estimator=noisy,error={error:g},remaining={how}"
        for error in ERRORS
        for how in REMAINING
    }
    | {("none", how): f"estimator={NO_PREDICTION[how]},remaining={how}" for how in REMAINING}
)
SYSTEMS = (
    *(f"{policy}:{known}" for known in KNOWN.values() for policy in POLICIES),
    *WITHOUT_LENGTHS,
)
MEAN = "e2e_mean_s"
SHOWN = {  # column of the runs: its heading and decimals
    "e2e_p99_s": ("P99 E2E, s", 1),
    "ttft_mean_s": ("mean TTFT, s", 2),
    "ttft_p99_s": ("P99 TTFT, s", 2),
    "preemptions": ("preemptions", 0),
}


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
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    """Scenarios by name."""
    loads: tuple[float, ...] = (0.9, 1.0, 1.1)
    """Arrivals as a fraction of what the cluster sustains."""

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed."""
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
    ).runs[["system", MEAN, *SHOWN]]
    return runs.assign(**cell._asdict(), engine=SIMULATOR_HASH)


def kept_runs(path: Path) -> pd.DataFrame:
    """Return the rows of the file that this engine made; none without a file."""
    if not path.exists():
        return pd.DataFrame(columns=["system", MEAN, *SHOWN, *Cell._fields, "engine"])
    kept = pd.read_csv(path, dtype={"engine": str})
    return kept[kept["engine"] == SIMULATOR_HASH]


def cells_of(runs: pd.DataFrame) -> set[Cell]:
    """Return the cells that all systems have played."""
    counts = runs.groupby(list(Cell._fields))["system"].nunique()
    return {Cell(*key) for key, count in counts.items() if count == len(SYSTEMS)}


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
    runs = kept_runs(options.out)
    runs = runs.drop_duplicates([*Cell._fields, "system"])
    return runs[pd.MultiIndex.from_frame(runs[list(Cell._fields)]).isin(cells)]


class Place:
    """The runs of one workload, scenario and load, by system and measure."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self.runs = runs.sort_values("seed").set_index("system")

    def values(self, system: str, key: str) -> NDArray[np.float64]:
        """Return a measure of a system, one value a seed."""
        return self.runs.loc[[system], key].to_numpy(dtype=np.float64)

    def mean(self, system: str, key: str) -> float:
        """Return the mean over seeds."""
        mean = mean_interval(self.values(system, key)).mean
        assert mean is not None, f"{system} finished no request"
        return mean

    def difference(self, system: str, reference: str, key: str) -> Interval:
        """Return system - reference, paired by seed."""
        return paired_difference(self.values(system, key), self.values(reference, key))


def is_decided(difference: Interval) -> bool:
    """Return whether the interval lies on one side of 0."""
    return None not in (difference.low, difference.high) and not (
        difference.low <= 0.0 <= difference.high  # pyright: ignore[reportOptionalOperand]
    )


def bold(text: str, is_bold: bool) -> str:
    """Return the text, in bold if asked."""
    return f"**{text}**" if is_bold else text


def difference_text(difference: Interval) -> str:
    """Return "+0.12 [+0.07, +0.17]", in bold if decided."""
    text = f"{difference.mean:+.2f}"
    if difference.low is not None and difference.high is not None:
        text += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    return bold(text, is_decided(difference))


def place_table(place: Place) -> str:
    """Return the table of one place: a row for what is known of lengths, and one a system that asks for none."""
    rows = []
    for (error, remaining), known in KNOWN.items():
        reference, *others = (f"{policy}:{known}" for policy in POLICIES)
        row = [error, remaining, f"{place.mean(reference, MEAN):.2f}"]
        for system in (*others, *WITHOUT_LENGTHS):
            row.append(difference_text(place.difference(system, reference, MEAN)))
        for key, (_, decimals) in SHOWN.items():
            texts = [f"{place.mean(reference, key):.{decimals}f}"]
            for system in others:
                difference = place.difference(system, reference, key)
                text = f"{place.mean(system, key):.{decimals}f}"
                texts.append(bold(text, is_decided(difference)))
            row.append(" / ".join(texts))
        rows.append(row)
    for system in WITHOUT_LENGTHS:
        shown = [f"{place.mean(system, key):.{SHOWN[key][1]}f}" for key in SHOWN]
        blank = [""] * len((*OTHERS, *WITHOUT_LENGTHS))
        rows.append([system, "", f"{place.mean(system, MEAN):.2f}", *blank, *shown])
    names = [f"{system} -" for system in (*OTHERS, *WITHOUT_LENGTHS)]
    heads = [heading for heading, _ in SHOWN.values()]
    return table(["error", "remaining", "mean E2E, s", *names, *heads], rows)


def residual_table(places: dict[str, Place]) -> str:
    """Return what residual remaining lengths add: residual - plug-in in mean E2E, by policy and error."""
    errors = [error for error, remaining in KNOWN if remaining == REMAINING[0]]
    rows = []
    for title, place in places.items():
        for policy in POLICIES:
            plug_in, residual = (
                [f"{policy}:{KNOWN[error, remaining]}" for error in errors]
                for remaining in REMAINING
            )
            gains = [
                place.difference(own, base, MEAN)
                for own, base in zip(residual, plug_in, strict=True)
            ]
            rows.append([f"{title}, {policy}", *map(difference_text, gains)])
    return table(["residual - plug-in, mean E2E, s", *errors], rows)


def report(runs: pd.DataFrame) -> str:
    """Return all tables as Markdown."""
    places = {
        f"{workload}, {scenario}, load {load:g}": Place(own)
        for (workload, scenario, load), own in runs.groupby(
            ["workload", "scenario", "load"], sort=False
        )
    }
    parts = []
    for title, place in places.items():
        parts += [f"### {title}", place_table(place)]
    return "\n\n".join([*parts, "### What residual remaining lengths add", residual_table(places)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is missing and print the tables."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    print(report(play_missing(options)))


if __name__ == "__main__":
    main()
