"""The cross-entropy search behind cem.py and serve_cem.py: its options, its state, and what is kept of it on disk.

Source: Rubinstein and Kroese, The Cross-Entropy Method, 2004; deviations kept up as in Szita and Lorincz, Learning
Tetris Using the Noisy Cross-Entropy Method, 2006; weights by rank from CMA-ES (Hansen, 2016). Left out: correlations
between coordinates.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from servegym.agents.training_state import (
    Record,
    check_place,
    note,
    read_kept,
    state_file,
    write_kept,
)
from servegym.traces.streams import stream

ALGORITHM = "cem"
ARRAYS = ("start", "mean", "deviation", "scale")  # of a Search
FEW_MEANS = 10  # of the last, averaged: noise of single generations goes
Whole = Annotated[int, tyro.conf.arg(metavar="N")]
Real = Annotated[float, tyro.conf.arg(metavar="X")]


@dataclass(kw_only=True)
class SearchOptions:
    """What any search takes; whoever searches for something adds what, and other defaults."""

    out: Path
    """Where the checkpoint goes: OUT.safetensors and OUT.json; OUT.state.json while it trains."""
    seed: Whole = 0
    """Of the search and of its training cases."""
    resume: bool = False
    """Go on from OUT.state.json, with the same options."""
    workers: Whole = 2
    """Processes; the result does not depend on it."""
    generations: Whole
    """How often candidates are drawn, played and ranked."""
    candidates: Whole = 32
    """Candidates a generation, in pairs on both sides of the mean: an even number."""
    elite: Whole
    """How many of them the next mean and deviation come from, better ones with more weight."""
    deviation: Real
    """First deviation of most weights."""
    least_deviation: Real
    """What deviations do not fall below."""
    mean_step: Real = 0.8
    """How far the mean moves towards that of the elite, in (0, 1]."""
    deviation_step: Real
    """How far deviations move, in (0, 1]."""

    def check(self) -> None:
        """ValueError for what cannot be searched."""
        for name in ("generations", "candidates", "elite", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; must be >= 1")
        if self.candidates % 2:
            raise ValueError(f"candidates = {self.candidates}; must be even")
        if self.elite > self.candidates:
            raise ValueError(f"elite = {self.elite}; must be <= candidates = {self.candidates}")
        for name in ("mean_step", "deviation_step"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)}; must be in (0, 1]")
        if not 0 <= self.least_deviation <= self.deviation < np.inf:
            raise ValueError(
                f"least_deviation = {self.least_deviation}; must be in 0 .. deviation = {self.deviation}"
            )

    def identity(self) -> dict[str, Any]:
        """Return what a search that goes on must have been started with, in plain JSON."""
        free = {"out", "resume", "workers", "generations"}
        kept = {name: value for name, value in asdict(self).items() if name not in free}
        return json.loads(json.dumps(kept))


@dataclass
class Search:
    """A normal distribution over vectors, one deviation a coordinate, where it began, and the means it had."""

    start: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    scale: np.ndarray  # what a deviation of 1 is in each coordinate
    generation: int = 0
    means: list[np.ndarray] = field(default_factory=list)  # of all generations

    def ask(self, seed: int, n: int) -> np.ndarray:
        """Return n candidates of this generation, float64[n, N]; the second half mirrors the first at the mean."""
        draws = stream(seed, f"candidates of generation {self.generation}")
        steps = self.deviation * draws.standard_normal((n // 2, len(self.mean)))
        return self.mean + np.vstack([steps, -steps])

    def tell(self, candidates: np.ndarray, scores: np.ndarray, options: SearchOptions) -> None:
        """Move towards the elite, the candidates with the least scores, and begin the next generation."""
        elite = candidates[np.argsort(scores, kind="stable")[: options.elite]]
        share = np.log(len(elite) + 0.5) - np.log(np.arange(1, len(elite) + 1))
        share /= share.sum()
        best = share @ elite
        deviation = np.sqrt(share @ (elite - best) ** 2)
        self.mean = self.mean + options.mean_step * (best - self.mean)
        nearer = self.deviation + options.deviation_step * (deviation - self.deviation)
        self.deviation = np.maximum(nearer, options.least_deviation) * (self.scale > 0)
        self.means = [*self.means, self.mean]
        self.generation += 1

    @property
    def spread_left(self) -> float:
        """The root mean square of the deviations that move."""
        return float(np.sqrt(np.mean(self.deviation[self.deviation > 0] ** 2)))

    def to_json(self) -> dict[str, Any]:
        """Return the state in plain JSON, exactly."""
        kept = {name: getattr(self, name).tolist() for name in ARRAYS}
        return kept | {
            "generation": self.generation,
            "means": [mean.tolist() for mean in self.means],
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Search":
        """Return what to_json gave."""
        arrays = {name: np.array(kept[name], np.float64) for name in ARRAYS}
        return cls(
            **arrays, generation=kept["generation"], means=list(map(np.array, kept["means"]))
        )


def begin(options: SearchOptions, first: Search, command: str) -> tuple[Search, Record]:
    """Return the search, the first one or where it was left, and its record; ValueError as in training_state.py."""
    if not options.resume:
        check_place(options.out)
        return first, Record(command)
    kept = read_kept(options.out, ALGORITHM, options.identity(), Search.from_json)
    return Search.from_json(kept), Record.going_on(kept, command)


def save(options: SearchOptions, search: Search, record: Record) -> None:
    """Keep the search on disk, to go on from."""
    kept = {"algorithm": ALGORITHM, "command": record.command, "options": options.identity()}
    write_kept(options.out, kept | {"wall_s": record.wall_s} | search.to_json())


@contextmanager
def kept_when_interrupted(options: SearchOptions, search: Search) -> Iterator[None]:
    """Say how to go on if Ctrl-C ends a search that has finished a generation."""
    try:
        yield
    except KeyboardInterrupt:
        if search.generation:
            note(
                f"{search.generation} generations are in {state_file(options.out)}; go on with --resume"
            )
        raise


def card_of(
    options: SearchOptions, search: Search, design: Mapping[str, Any], told: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the card of a checkpoint. design: its decision and architecture; told: what the run says of itself."""
    trained_on = options.identity() | {"generations": search.generation}
    said = {"algorithm": ALGORITHM, "seed": options.seed, "trained_on": trained_on}
    return {**design, **said, **told}
