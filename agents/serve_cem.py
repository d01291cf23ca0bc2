"""CEM for Serve: a linear score of pairs of a queue and an instance, fitted for tier-weighted SLO goodput.

    servegym train serve --algo cem --objective goodput --seed 0 --out out/serve

As cem.py, but for the two policies of a serve checkpoint (baselines/learned/serve_linear.py), on cases with tiers
(serve_cases.py). A candidate costs, on a case, the log of the share of weight that missed its SLO, a tenth of a percent
added; the mean over cases is minimised, so that calm cases and congested ones count alike. The search begins at strict
priority with the least KV. A run is cut off DRAIN_S after its last arrival: a policy that waits in vain costs no time.
Source: as cem.py. Left out: as there; other objectives.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from servegym.agents.evaluation import pool_of
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
from servegym.agents.serve_cases import ServeCase, training_cases, validation_cases
from servegym.agents.training_state import mark_finished, note
from servegym.baselines.learned import serve_linear, write_checkpoint
from servegym.baselines.learned.architectures import policy_of
from servegym.experiments.progress import announce_compilation
from servegym.simulator.accounting import take_account
from servegym.simulator.policy import Policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.slo import DEFAULT_SLO, tier_weight
from servegym.traces import Trace

DECISIONS = ("serve",)
DESIGN = ("serve", "linear")
# The trained decision on what it is trained for: bursts, four tiers, requests that wait at the gateway alone.
COMPARE = (
    "servegym compare --workload azure-conv --arrivals gamma:cv=3 --load .95 --scenario tight --instances 4 --tiers 4 "
    "--tier-mix enterprise --max-local-waiting 0 "
    "--systems learned:{file},least-requests:queue=strict-priority,least-requests:queue=weighted"
)
LEAST_MISSED = 1e-3  # of the weight; less is as good as none
FAILED = 1.0  # what a run that fails misses
DRAIN_S = 30.0
CANDIDATES_A_TASK = 7
# Where a search begins: one tier down costs .75, a full instance .5; waiting is worse than any pair.
START = {"tier_1": 0.75, "tier_2": 1.5, "tier_3": 2.25, "kv_with_request": 0.5, "wait": 4.0}
FIRST_DEVIATIONS = {name: 0.7 for name in ("tier_0", "tier_1", "tier_2", "tier_3", "wait")} | {
    "kv_full": 1.5,
    "ends_full": 1.5,
}  # others: an option


@dataclass(kw_only=True)
class Options(SearchOptions):
    """What to train, and how; the defaults are what the shipped policy was trained with."""

    objective: Literal["goodput"] = "goodput"
    """Requests within the SLO (TTFT and TPOT), each times 2^-tier."""
    out: Path = Path("out/serve")
    generations: Whole = 60
    elite: Whole = 10
    deviation: Real = 0.35
    least_deviation: Real = 0.03
    deviation_step: Real = 0.2
    requests: Whole = 6_000
    """Requests of a case."""

    def check(self) -> None:
        """ValueError for what cannot be trained."""
        super().check()
        if self.requests < 2:
            raise ValueError(f"requests = {self.requests}; must be >= 2")


def start_of(options: Options) -> Search:
    """Return where a search begins."""
    names = [*serve_linear.HEAD_TERMS, *serve_linear.PAIR_TERMS, *serve_linear.PAIR_TERMS, "wait"]
    start = np.zeros(serve_linear.N_WEIGHTS)
    for name, value in START.items():
        start[names.index(name)] = value  # of a pair's term the row that does not depend on urgency
    deviation = np.array([FIRST_DEVIATIONS.get(name, options.deviation) for name in names])
    return Search(start, start, deviation, (deviation > 0).astype(np.float64))


class ServeSimulation(Simulation):
    """A Simulation whose queue policy is an object, not a name of its config."""

    queue: Policy | None = None

    def decider(self, role: str) -> tuple[Policy | None, Any]:
        """Return the queue policy that is set, and everything else as the config says."""
        return (self.queue, {}) if role == "queue" and self.queue else super().decider(role)


class Player:
    """Plays cases with candidates, or with strict priority and least-requests, in one paused simulation a kind."""

    def __init__(self) -> None:
        self._simulations: dict[tuple[str, int, bool], ServeSimulation] = {}

    def missed(self, weights: np.ndarray | None, case: ServeCase) -> float:
        """Return the share of the offered weight that missed its SLO; None plays strict priority."""
        queue, dispatch = policies_of(weights)
        trace, kind = _trace(case), (case.cluster, case.requests, weights is None)
        if kind not in self._simulations:
            self._simulations[kind] = ServeSimulation(trace, case.config(), dispatch)
        simulation = self._simulations[kind]
        simulation.queue, simulation.dispatch = queue, dispatch
        simulation.restart(trace, case.seed)
        try:
            simulation.run(trace.arrival_s[-1] + DRAIN_S)
        except RuntimeError:  # no progress
            return FAILED
        return missed_share(simulation)


def policies_of(weights: np.ndarray | None) -> tuple[Policy, Policy]:
    """Return queue and dispatch policy: of weights, or strict priority and least-requests."""
    if weights is None:
        return find_policy("queue", "strict-priority"), find_policy("dispatch", "least-requests")
    return policy_of(DESIGN, "queue", weights), policy_of(DESIGN, "dispatch", weights)


def missed_share(simulation: Simulation) -> float:
    """Return the share of the offered weight that has not met its SLO."""
    tiers = simulation.config.tiers
    weights = np.array([tier_weight(tier) for tier in range(tiers)])
    records = simulation.state.requests
    cut_ps = int(simulation.state.shared[0]["now_ps"])
    limits = DEFAULT_SLO.by_tier(tiers, None)
    totals = take_account(records, simulation.trace.tier[: len(records)], limits, cut_ps).totals
    return 1.0 - float(weights @ totals["slo_met"]) / float(weights @ totals["offered"])


@lru_cache(maxsize=32)
def _trace(case: ServeCase) -> Trace:
    return case.trace()


@lru_cache(maxsize=1)
def _player() -> Player:
    return Player()


def missed_of(vectors: Sequence[np.ndarray | None], case: ServeCase) -> list[float]:
    """Return what each of the vectors misses on a case."""
    return [_player().missed(vector, case) for vector in vectors]


def all_missed(
    vectors: Sequence[np.ndarray | None],
    cases: Sequence[ServeCase],
    pool: ProcessPoolExecutor | None,
) -> np.ndarray:
    """Return float64[cases, vectors]; pool: who plays, None: this process."""
    starts = range(0, len(vectors), CANDIDATES_A_TASK)
    tasks = [(vectors[k : k + CANDIDATES_A_TASK], case) for case in cases for k in starts]
    play = map if pool is None else pool.map
    flat = [each for missed in play(missed_of, *zip(*tasks, strict=True)) for each in missed]
    return np.array(flat).reshape(len(cases), len(vectors))


def cost_of(missed: np.ndarray) -> np.ndarray:
    """Return the mean over cases of the log of what is missed, LEAST_MISSED added; [cases, n] to [n]."""
    return np.log(missed + LEAST_MISSED).mean(axis=0)


def train(options: Options, command: str) -> dict[str, Any]:
    """Train, write the checkpoint and return its card. command: what was typed, for the card.

    ValueError for bad options, a state that another search left, or one that would be lost. KeyboardInterrupt: what is
    finished is kept in OUT.state.json, and a line says how to go on.
    """
    options.check()
    announce_compilation()
    search, record = begin(options, start_of(options), command)
    with pool_of(options.workers) as pool, kept_when_interrupted(options, search):
        play = partial(all_missed, pool=pool)
        while search.generation < options.generations:
            cases = training_cases(options.seed, search.generation, options.requests)
            change = advance(search, options, partial(play, cases=cases))
            save(options, search, record)
            wall_s = record.wall_s
            left_s = wall_s / search.generation * (options.generations - search.generation)
            note(
                f"{search.generation}/{options.generations} generations, {wall_s:.0f} s, about {left_s:.0f} s "
                f"left: misses {change:+.1%} of strict priority's, deviation {search.spread_left:.3f}"
            )
        vector, evaluation = choose(search, play, options.requests)
    told = {"objective": options.objective, **record.for_card(), "evaluation": evaluation}
    design = {"decision": DESIGN[0], "architecture": DESIGN[1]}
    card = card_of(options, search, design, told)
    file = write_checkpoint(options.out, serve_linear.unpack(vector), card)
    mark_finished(options.out)
    return {"file": str(file)} | card


def advance(search: Search, options: Options, missed_by: Callable[..., np.ndarray]) -> float:
    """Play one generation and move on; return how much more than strict priority the mean misses, a share of it."""
    candidates = search.ask(options.seed, options.candidates)
    costs = cost_of(missed_by([*candidates, search.mean, None]))
    search.tell(candidates, costs[:-2], options)
    return np.exp(costs[-2] - costs[-1]) - 1.0


def choose(search: Search, play: Any, requests: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the best of the last means and of their average on validation cases, and what it misses there."""
    last = search.means[-FEW_MEANS:]
    finalists = [*last, np.mean(last, axis=0)]
    cases = validation_cases(requests)
    missed = play([*finalists, None], cases)
    costs = cost_of(missed)
    best = int(np.argmin(costs[:-1]))
    rows = [
        asdict(case) | {"strict_priority": row[-1], "learned": row[best]}
        for case, row in zip(cases, missed.tolist(), strict=True)
    ]
    return finalists[best], {
        "cost": float(costs[best]),
        "cost_of_strict_priority": float(costs[-1]),
        "missed": "share of the weight, 2^-tier a request, that missed its SLO",
        "cases": rows,
    }
