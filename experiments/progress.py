"""What a person sees while a grid runs: a progress bar, and a line when kernels must be compiled.

Everything goes to stderr, so that stdout holds results only.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from numba.core.caching import _CacheLocator
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from servegym.simulator.kernel import (
    IS_JIT_DISABLED,
    SIMULATOR_FOLDER,
    SIMULATOR_HASH,
    cache_root,
)

COMPILING = (
    "compiling the simulator for this version: about 25 s, once; the next run starts at once"
)
Pair = tuple[int, str]


def is_compile_cache_empty() -> bool:
    """Return whether the engine has yet to be compiled on this machine."""
    if IS_JIT_DISABLED:
        return False
    return next(engine_cache().glob("*.nbi"), None) is None


def engine_cache() -> Path:
    """Return where numba keeps this installation's engine: it names folders by the path of the sources, too."""
    subfolder = _CacheLocator.get_suitable_cache_subpath(str(SIMULATOR_FOLDER / "kernel.py"))
    return cache_root() / SIMULATOR_HASH / subfolder


def announce_compilation() -> None:
    """Print one line on stderr if kernels are about to be compiled."""
    if is_compile_cache_empty():
        print(COMPILING, file=sys.stderr, flush=True)


def bar(n_cells: int) -> Callable[[Iterable[Pair]], Iterator[Pair]]:
    """Return a function that passes (seed, system) pairs on and draws how far they are."""

    def follow(pairs: Iterable[Pair]) -> Iterator[Pair]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        is_shown = console.is_terminal
        with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
            task = progress.add_task("runs", total=n_cells)
            for seed, system in pairs:
                progress.update(task, description=f"seed {seed}, {system}")
                yield seed, system
                progress.advance(task)

    return follow
