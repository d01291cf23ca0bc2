"""What a person sees while a study runs: a bar on a terminal, nothing else, so that stdout holds results only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from servegym.tuning.tally import Tally


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[Tally], None]]:
    """Draw how many of the total are done; gives what is called with the numbers."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as drawn:
        task = drawn.add_task(name, total=total)

        def watch(now: Tally) -> None:
            failed = f", {now.failed} failed" if now.failed else ""
            drawn.update(
                task, completed=now.done, description=f"{name}: {now.pruned} given up{failed}"
            )

        yield watch
