"""CEM: dispatch policies fitted by the cross-entropy method, on whole runs of the simulator.

    servegym train dispatch --algo cem --objective mean-e2e --seed 0 --out out/mine

Each generation draws candidates from a normal distribution with a mean and a deviation for every coordinate, plays all
of them on the same new cases (common random numbers), and moves mean and deviation towards those of the elite. A
candidate's score is the mean over cases of the change of its cost against the start's, in which gains saturate: a lucky
run of a congested cluster gains 20 % and more, a better choice on a calm one 5 %. Losses do not, so what diverges in
one case loses. At the end the last mean and averages of the last means are set beside each other on validation cases.
Source: Rubinstein and Kroese, The Cross-Entropy Method, 2004; deviations kept up as in Szita and Lorincz, Learning
Tetris Using the Noisy Cross-Entropy Method, 2006; weights by rank from CMA-ES (Hansen, 2016); averages of means from
Polyak and Juditsky, 1992. Left out: correlations between coordinates.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import tyro

from servegym.agents.candidates import Space, linear_space, set_mlp_space
from servegym.agents.evaluation import Evaluator, as_json, evaluator
from servegym.agents.objectives import find_objective
from servegym.agents.scenarios import Case, Mix
from servegym.agents.training_state import note, read_kept
from servegym.baselines.learned import write_checkpoint
from servegym.baselines.learned.layouts import MOST_HIDDEN
from servegym.experiments.progress import announce_compilation
from servegym.simulator.kernel import SIMULATOR_HASH
from servegym.traces.streams import stream

DECISIONS = ("dispatch",)
MOST_GAIN, MOST_LOSS = (
    0.06,
    1.0,
)  # shares of the start's cost: what gains saturate at; what a failure counts
ARRAYS = ("start", "mean", "deviation", "scale")  # of a Search
FEW_MEANS = 10  # of the last, averaged: noise of single generations goes
Whole = Annotated[int, tyro.conf.arg(metavar="N")]
Real = Annotated[float, tyro.conf.arg(metavar="X")]


@dataclass(kw_only=True)
class Options:
    """What to train, and how; the defaults are what the shipped policies were trained with."""

    objective: str = "mean-e2e"
    """mean-e2e, p99-e2e, ttft-slo or goodput."""
    seed: Whole = 0
    """Of the search and of its training cases."""
    out: Path = Path("out/cem")
    """Where the checkpoint goes: OUT.safetensors and OUT.json; OUT.state.json while it trains."""
    resume: bool = False
    """Go on from OUT.state.json, with the same options."""
    workers: Whole = 2
    """Processes; the result does not depend on it."""
    architecture: Literal["linear", "set-mlp"] = "linear"
    """A linear score of each instance, or a small network over the set of instances on top of it."""
    hidden: Whole = 8
    """Width of the network (set-mlp)."""
    generations: Whole = 80
    """How often candidates are drawn, played and ranked."""
    candidates: Whole = 32
    """Candidates a generation, in pairs on both sides of the mean: an even number."""
    elite: Whole = 12
    """How many of them the next mean and deviation come from, better ones with more weight."""
    deviation: Real = 0.1
    """First deviation of a weight, in units of candidates.py; the start has length 1."""
    least_deviation: Real = 0.02
    """What deviations do not fall below."""
    mean_step: Real = 0.8
    """How far the mean moves towards that of the elite, in (0, 1]."""
    deviation_step: Real = 0.15
    """How far deviations move, in (0, 1]."""
    instances: tuple[int, ...] = (4, 6, 16)
    """Fleet sizes."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Workloads by name."""
    lengths: tuple[str, ...] = ("predicted", "constant")
    """What is known of output lengths: predicted (with error .5), constant (their mean), learned, oracle."""
    loads: tuple[float, float] = (0.86, 1.08)
    """Least and largest load."""
    default_share: Real = 0.0
    """Share of cases in the default scenario instead of tight."""
    requests: Whole = 10_000
    """Requests of a case."""
    burst_requests: Whole = 2_000
    """Requests of the short cases with a workload's own arrivals (scenarios.py); 0: no such cases."""

    def mix(self) -> Mix:
        """Return what cases are drawn from."""
        return Mix(
            self.instances,
            self.workloads,
            self.lengths,
            self.loads,
            self.default_share,
            self.requests,
            self.burst_requests,
        )

    def check(self) -> None:
        """ValueError for what cannot be trained."""
        find_objective(self.objective)
        self.mix()
        for name in ("generations", "candidates", "elite", "hidden", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; must be >= 1")
        if self.hidden > MOST_HIDDEN:
            raise ValueError(f"hidden = {self.hidden}; must be <= {MOST_HIDDEN}")
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


class SearchOptions(Protocol):
    """What any search takes from its options."""

    out: Path
    elite: int
    mean_step: float
    deviation_step: float
    least_deviation: float

    def identity(self) -> dict[str, Any]:
        """Return what a search that goes on must have been started with, in plain JSON."""
        ...


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


def changes_of(costs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return (cost - start's) / |start's| from costs, float64[cases, candidates], and the start's, float64[cases].

    At most MOST_LOSS, which NaN counts, too. Cases in which the start itself fails, or costs nothing, are left out.
    """
    known = np.isfinite(start) & (start != 0)
    change = (costs[known] - start[known, None]) / np.abs(start[known, None])
    return np.minimum(np.nan_to_num(change, nan=MOST_LOSS), MOST_LOSS)


def scores_of(costs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the score of each candidate, float64[candidates]: the mean of its changes, gains saturating."""
    change = changes_of(costs, start)
    if not len(change):
        return np.zeros(costs.shape[1])
    gain = MOST_GAIN * np.tanh(np.minimum(change, 0.0) / MOST_GAIN)
    return np.where(change < 0, gain, change).mean(axis=0)


def mean_change(costs: np.ndarray, start: np.ndarray) -> float:
    """Return the mean change of costs, float64[cases], against the start's; 0 where none is known."""
    change = changes_of(costs[:, None], start)
    return float(change.mean()) if len(change) else 0.0


def advance(search: Search, options: Options, costs: Callable[[np.ndarray], np.ndarray]) -> float:
    """Play one generation and move on; return how much the mean's cost differs from the start's (mean_change).

    costs: of vectors [n, N] on the cases of this generation, float64[cases, n].
    """
    candidates = search.ask(options.seed, options.candidates)
    played = costs(np.vstack([candidates, search.start, search.mean]))
    search.tell(candidates, scores_of(played, played[:, -2])[:-2], options)
    failed = int(np.isnan(played).any(axis=0).sum())
    if failed:
        note(
            f"generation {search.generation}: {failed} candidates failed; a failed run counts as +100 %"
        )
    return mean_change(played[:, -1], played[:, -2])


def train(options: Options, command: str) -> dict[str, Any]:
    """Train, write the checkpoint and return its card. command: what was typed, for the card.

    ValueError for bad options, or a state that another search left. KeyboardInterrupt: what is finished is kept in
    OUT.state.json, and a line says how to go on.
    """
    options.check()
    announce_compilation()
    begun_s = time.monotonic()
    mix = options.mix()
    space = linear_space()
    if options.architecture == "set-mlp":
        space = set_mlp_space(options.hidden, options.seed)
    nothing = np.zeros(0)
    search, spent_s = Search(nothing, nothing, nothing, nothing), 0.0
    try:
        with evaluator(options.workers, options.objective) as players:
            search, spent_s = begin(options, space)
            while search.generation < options.generations:
                cases = mix.training_cases(options.seed, search.generation)
                change = advance(
                    search, options, partial(costs_of, space=space, players=players, cases=cases)
                )
                wall_s = spent_s + time.monotonic() - begun_s
                save(options, search, wall_s)
                note(progress(options, search, change, wall_s))
            vector, evaluation = choose(search, space, players, options)
    except KeyboardInterrupt:
        if search.generation:
            note(
                f"{search.generation} generations are in {state_file(options)}; go on with --resume"
            )
        raise
    card = {
        "decision": "dispatch",
        **space.card,
        "objective": options.objective,
        "algorithm": "cem",
        "command": command,
        "seed": options.seed,
        "wall_s": round(spent_s + time.monotonic() - begun_s, 1),
        "trained_on": options.identity() | {"generations": search.generation},
        "evaluation": evaluation,
    }
    file = write_checkpoint(options.out, space.tensors(vector), card)
    return {"file": str(file)} | card


def begin(options: Options, space: Space) -> tuple[Search, float]:
    """Return the search, new or where it was left, and the seconds that it has taken."""
    if options.resume:
        kept = read_state(options)
        return Search.from_json(kept), kept["wall_s"]
    return Search(space.start, space.start, options.deviation * space.scale, space.scale), 0.0


def costs_of(
    vectors: np.ndarray, space: Space, players: Evaluator, cases: Sequence[Case]
) -> np.ndarray:
    """Return what vectors [n, N] cost on cases, float64[cases, n]."""
    return players.costs([space.policy(vector) for vector in vectors], cases)


def choose(
    search: Search, space: Space, players: Evaluator, options: Options
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the best of the last mean and the averages of few and of half the means, and what it does there.

    Also on fleets of sizes that were not trained on; beside it the start. Values are the objective's numbers.
    """
    mix, sign = options.mix(), 1.0 if find_objective(options.objective).better == "lower" else -1.0
    means, half = search.means, (len(search.means) + 1) // 2
    averages = [np.mean(means[-n:], axis=0) for n in (1, FEW_MEANS, half)]
    finalists = np.vstack([search.start, *averages])
    cases = mix.validation_cases()
    costs = costs_of(finalists, space, players, cases)
    best = 1 + int(np.argmin(scores_of(costs, costs[:, 0])[1:]))
    untrained = mix.validation_cases(instances=mix.untrained_instances())
    others = costs_of(finalists[[0, best]], space, players, untrained)
    shown = np.vstack([costs[:, [0, best]], others])
    rows = [
        asdict(case) | {"start": as_json(before), "learned": as_json(after)}
        for case, (before, after) in zip([*cases, *untrained], sign * shown, strict=True)
    ]
    change = mean_change(shown[:, 1], shown[:, 0])
    note(f"on {len(rows)} validation cases: {change:+.2%} of the start's")
    return finalists[best], {"seeds": "validation", "cases": rows}


def progress(options: Options, search: Search, change: float, wall_s: float) -> str:
    """Return a line for a person: how far, how long still, and how much better than the start."""
    left_s = wall_s / search.generation * (options.generations - search.generation)
    return (
        f"{search.generation}/{options.generations} generations, {wall_s:.0f} s, about {left_s:.0f} s left: "
        f"{options.objective} {change:+.2%} of the start's, deviation {search.spread_left:.3f}"
    )


def state_file(options: SearchOptions) -> Path:
    """Return where a search is kept after every generation."""
    return options.out.with_name(options.out.name.removesuffix(".safetensors") + ".state.json")


def save(options: SearchOptions, search: Search, wall_s: float) -> None:
    """Write the state at once, so that an interrupt never leaves a part of it."""
    path = state_file(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"options": options.identity(), "engine": SIMULATOR_HASH, "wall_s": wall_s}
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(kept | search.to_json()))
    os.replace(part, path)


def read_state(options: SearchOptions) -> dict[str, Any]:
    """Return what `save` wrote; ValueError as in read_kept."""
    return read_kept(state_file(options), options.identity(), Search.from_json)
