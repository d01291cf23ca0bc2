"""CEM: dispatch policies fitted by the cross-entropy method, on whole runs of the simulator.

    servegym train dispatch --algo cem --objective mean-e2e --seed 0 --out out/mine

Each generation draws candidates from a normal distribution with a mean and a deviation for every coordinate, plays all
of them on the same new cases (common random numbers), and moves mean and deviation towards those of the elite. A
candidate's score is the mean over cases of the change of its cost against the start's, in which gains saturate: a lucky
run of a congested cluster gains 20 % and more, a better choice on a calm one 5 %. Losses do not, so what diverges in
one case loses. At the end the last mean and averages of the last means are set beside each other on validation cases.
Source: search.py; averages of means from Polyak and Juditsky, 1992.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from servegym.agents.candidates import Space, linear_space, set_mlp_space
from servegym.agents.evaluation import Evaluator, as_json, evaluator
from servegym.agents.objectives import find_objective
from servegym.agents.scenarios import Case, Mix
from servegym.agents.search import (
    FEW_MEANS,
    Real,
    Search,
    SearchOptions,
    Whole,
    begin,
    card_of,
    kept_when_interrupted,
    save,
)
from servegym.agents.training_state import COMPARE_DISPATCH, mark_finished, note
from servegym.baselines.learned import write_checkpoint
from servegym.baselines.learned.layouts import MOST_HIDDEN
from servegym.experiments.progress import announce_compilation

DECISIONS = ("dispatch",)
COMPARE = COMPARE_DISPATCH
# Shares of the start's cost: what gains saturate at; what a failure counts.
MOST_GAIN, MOST_LOSS = 0.06, 1.0


@dataclass(kw_only=True)
class Options(SearchOptions):
    """What to train, and how; the defaults are what the shipped policies were trained with."""

    objective: str = "mean-e2e"
    """mean-e2e, p99-e2e, ttft-slo or goodput."""
    out: Path = Path("out/cem")
    generations: Whole = 110
    elite: Whole = 12
    deviation: Real = 0.1
    """First deviation of a weight, in units of candidates.py; the start has length 1."""
    least_deviation: Real = 0.02
    deviation_step: Real = 0.15
    architecture: Literal["linear", "set-mlp"] = "linear"
    """A linear score of each instance, or a small network over the set of instances on top of it."""
    hidden: Whole = 8
    """Width of the network (set-mlp)."""
    instances: tuple[int, ...] = (4, 6, 16)
    """Fleet sizes."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Workloads by name."""
    lengths: tuple[str, ...] = ("predicted", "constant")
    """What is known of output lengths: predicted (with error .5), constant (their mean), learned, oracle."""
    loads: tuple[float, float] = (0.86, 1.08)
    """Least and largest load."""
    scenarios: tuple[str, ...] = ("tight", "default")
    """Scenarios by name, each of as many cases."""
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
            self.scenarios,
            self.requests,
            self.burst_requests,
        )

    def space(self) -> Space:
        """Return the vectors that are searched."""
        is_linear = self.architecture == "linear"
        return linear_space() if is_linear else set_mlp_space(self.hidden, self.seed)

    def check(self) -> None:
        """ValueError for what cannot be trained."""
        find_objective(self.objective)
        self.mix()
        if not 1 <= self.hidden <= MOST_HIDDEN:
            raise ValueError(f"hidden = {self.hidden}; must be in 1 .. {MOST_HIDDEN}")
        super().check()


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

    ValueError for bad options, a state that another search left, or one that would be lost. KeyboardInterrupt: what is
    finished is kept in OUT.state.json, and a line says how to go on.
    """
    options.check()
    announce_compilation()
    mix, space = options.mix(), options.space()
    first = Search(space.start, space.start, options.deviation * space.scale, space.scale)
    search, record = begin(options, first, command)
    with (
        evaluator(options.workers, options.objective) as players,
        kept_when_interrupted(options, search),
    ):
        while search.generation < options.generations:
            cases = mix.training_cases(options.seed, search.generation)
            change = advance(
                search, options, partial(costs_of, space=space, players=players, cases=cases)
            )
            save(options, search, record)
            note(progress(options, search, change, record.wall_s))
        vector, evaluation = choose(search, space, players, options)
    told = {"objective": options.objective, **record.for_card(), "evaluation": evaluation}
    card = card_of(options, search, {"decision": "dispatch", **space.card}, told)
    file = write_checkpoint(options.out, space.tensors(vector), card)
    mark_finished(options.out)
    return {"file": str(file)} | card


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
