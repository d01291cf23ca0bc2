"""Playing candidates: one run of a candidate on a seed's trace, and the objective's value.

All candidates play the same traces (common random numbers). Traces and saturation are prepared once a process; tiers
are drawn once for each number of tiers. A seed plays the same trace whatever else is asked for.
"""

import math
from collections.abc import Sequence

from servegym.baselines.offered_rate import check_load_and_rate
from servegym.baselines.saturation import saturation_rate
from servegym.baselines.simulate import simulate
from servegym.experiments.sources import at_rate, traces_by_seed, with_tiers
from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result
from servegym.traces import Trace
from servegym.tuning.drift import find_played
from servegym.tuning.objectives import find_objective
from servegym.tuning.problem import Params, Problem


class Player:
    """Plays candidates of one problem."""

    def __init__(self, problem: Problem, seeds: Sequence[int] | None = None) -> None:
        """Prepare the traces of the seeds (those of a trial by default); ValueError for bad input."""
        self.problem = problem
        self.objective = find_objective(problem.objective)
        self._seeds = problem.tuning_seeds if seeds is None else list(seeds)
        self._base = ClusterConfig(**problem.cluster)
        self._traces = self._prepare()
        self._tiered: dict[int, dict[int, Trace]] = {}

    def _prepare(self) -> dict[int, Trace]:
        problem = self.problem
        source = find_played(problem.trace, problem.workload)
        check_load_and_rate(source, problem.load, problem.rate_per_s)
        first, n = self._seeds[0], len(self._seeds)
        if isinstance(
            source, Trace
        ):  # blocks of one cut, so that tuning and held-out ones are disjoint
            first, n = problem.seed, problem.seeds + problem.held_out
        drawn = traces_by_seed(source, n, problem.n_requests, False, first, problem.arrivals)
        saturation_per_s = saturation_rate(source, self._base)
        played = at_rate(drawn, source, problem.load, problem.rate_per_s, saturation_per_s)
        return {seed: played[seed] for seed in self._seeds}

    def trace(self, seed: int, tiers: int) -> Trace:
        """Return what a seed plays with that many tiers."""
        if tiers not in self._tiered:
            self._tiered[tiers] = with_tiers(self._traces, self.problem.tier_mix, tiers)
        return self._tiered[tiers][seed]

    def run(self, params: Params, seed: int) -> Result:
        """Play a candidate on a seed; {} is the system as it is."""
        tiers = self.problem.tiers(params)
        config = self._base
        if tiers != config.tiers:
            config = ClusterConfig(**(config.model_dump() | {"tiers": tiers}))
        return simulate(
            self.trace(seed, tiers),
            config,
            self.problem.system_text(params),
            seed=seed,
            horizon_s=self.problem.horizon_s,
        )

    def value(self, params: Params, seed: int) -> float:
        """Return the objective of a candidate on a seed; ValueError where it is undefined."""
        return self.value_of(self.run(params, seed), seed)

    def value_of(self, result: Result, seed: int) -> float:
        """Return the objective of a run on a seed; ValueError where it is undefined."""
        value = self.objective.of(result)
        if not math.isfinite(value):
            raise ValueError(f"{self.objective.name} is {value} at seed {seed}")
        return float(value)
