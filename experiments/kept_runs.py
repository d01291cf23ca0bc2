"""Kept runs: a study's cells, played by processes and kept in a CSV file as they finish.

A cell is what some systems play together, a NamedTuple of plain values with a field `seed`. A row of the file is one
system in one cell, with the version of what played it; what a file has in the present version is not played again, so
a study can be stopped, gone on with, and given more cells or systems.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

from servegym.baselines.learned import LearnedPolicy
from servegym.baselines.systems import find_system
from servegym.experiments.progress import announce_compilation
from servegym.simulator.kernel import SIMULATOR_HASH

Cell = Any  # a NamedTuple
# Returns rows of these systems in a cell, with the column `system`.
Play = Callable[[Cell, Sequence[str]], pd.DataFrame]
SYSTEM, VERSION = "system", "engine"
NO_VERSION = ""
PLAYED_SEED = "played_seed"  # in a row, where a cell is more than one seed


def version_of(system: str) -> str:
    """Return what a system's runs depend on: the simulator's hash, and that of a learned policy's file.

    NO_VERSION for a system that is no more, as one whose file is gone.
    """
    try:
        policy = find_system(system).policy
    except ValueError:
        return NO_VERSION
    is_learned = isinstance(policy, LearnedPolicy)
    return f"{SIMULATOR_HASH} {policy.sha256[:16]}" if is_learned else SIMULATOR_HASH


def kept_runs(path: Path) -> pd.DataFrame:
    """Return the rows of the file that the present version made; none without a file."""
    if not path.exists():
        return pd.DataFrame(columns=[SYSTEM, VERSION])
    runs = pd.read_csv(path, dtype={VERSION: str})
    present = {system: version_of(system) for system in runs[SYSTEM].unique()}
    return runs.loc[runs[VERSION] == runs[SYSTEM].map(present.get), :]


def played_systems(runs: pd.DataFrame, fields: Sequence[str]) -> dict[tuple[Any, ...], set[str]]:
    """Return the systems that have played, by cell."""
    found: dict[tuple[Any, ...], set[str]] = {}
    if runs.empty:
        return found
    for *cell, system in runs.filter([*fields, SYSTEM]).itertuples(index=False, name=None):
        found.setdefault(tuple(cell), set()).add(system)
    return found


def play_all(
    missing: Mapping[Cell, Sequence[str]], play: Play, workers: int
) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield every cell with its runs, as they finish."""
    if workers == 1:
        for cell, systems in missing.items():
            yield cell, play(cell, systems)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would share the compiler's state
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        started = {pool.submit(play, cell, systems): cell for cell, systems in missing.items()}
        for future in as_completed(started):
            yield started[future], future.result()


def play_missing(
    cells: Mapping[Cell, Sequence[str]], play: Play, out: Path, workers: int = 1
) -> pd.DataFrame:
    """Play the systems of every cell that the file lacks, keep each cell as soon as it is done; return their runs."""
    if not cells:
        raise ValueError("nothing to play: a study needs a seed, a workload, a scenario and a load")
    fields = next(iter(cells))._fields
    kept = played_systems(kept_runs(out), fields)
    lacks = {
        cell: [system for system in systems if system not in kept.get(tuple(cell), ())]
        for cell, systems in cells.items()
    }
    missing = {cell: systems for cell, systems in lacks.items() if systems}
    out.parent.mkdir(parents=True, exist_ok=True)
    if missing:
        announce_compilation()
    start_s = time.monotonic()
    for count, (cell, runs) in enumerate(play_all(missing, play, workers), 1):
        runs = runs.assign(**cell._asdict(), **{VERSION: runs[SYSTEM].map(version_of)})
        is_new = not out.exists()
        with out.open("a", encoding="utf-8") as file:
            file.write(runs.to_csv(index=False, header=is_new))  # in one piece
        spent_s = time.monotonic() - start_s
        left_s = spent_s / count * (len(missing) - count)
        print(
            f"{count}/{len(missing)} cells, {spent_s:.0f} s, about {left_s:.0f} s left: {cell}",
            file=sys.stderr,
            flush=True,
        )
    return runs_of(cells, kept_runs(out))


def runs_of(cells: Mapping[Cell, Sequence[str]], runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of these cells and their systems, each once."""
    fields = list(next(iter(cells))._fields)
    wanted = {(*cell, system) for cell, systems in cells.items() for system in systems}
    keys = pd.Series(
        list(runs.filter([*fields, SYSTEM]).itertuples(index=False, name=None)), runs.index
    )
    is_first = ~runs.duplicated([*fields, SYSTEM, *({PLAYED_SEED} & set(runs.columns))])
    return runs.loc[keys.isin(wanted) & is_first, :]
